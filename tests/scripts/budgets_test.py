"""scripts/budgets finds what it must and lets the rest pass."""
import importlib.machinery
import importlib.util
import sys

# (path, text, number of findings)
CASES = [
    ("a.h", "#pragma once\nint X();\n", 0),
    ("a.h", "int X();\n", 1),
    ("a.h", "#pragma once\n" + "\n" * 249, 0),
    ("a.h", "#pragma once\n" + "\n" * 250, 1),
    ("a.cc", "\n" * 500, 0),
    ("a.cc", "\n" * 501, 1),
    ("a.cc", "x" * 100 + "\n", 0),
    ("a.cc", "x" * 101 + "\n", 1),
    ("a.cc", "\u00e9" * 100 + "\n", 0),
    ("a.cc", "int x; \n", 1),
    ("a.cc", "int x;", 1),
    ("a.cc", "std::exit(1);\n", 1),
    ("a.cc", "exit(1);\n", 1),
    ("a.cc", "loop.exit(1); OnExit(2); MPI_Abort(x);\n", 0),
    ("trainer/main.cc", "std::exit(1); getenv(\"A\");\n", 0),
    ("a.cc", "std::getenv(\"A\");\n", 1),
    ("a.cc", "auto* x = new int(3);\n", 1),
    ("a.cc", "return std::unique_ptr<X>(\n    new X(1));\n", 0),
    ("a.cc", "delete x;\n", 1),
    ("a.cc", "delete[] x;\n", 1),
    ("a.cc", "X(const X&) = delete;\n", 0),
    ("a.cc", "// new Thing, then delete it and exit(1)\n", 0),
    ("a.cc", "Fail(\"new Thing \\\" delete x; exit(1)\");\n", 0),
    ("a.cc", "auto x = R\"(new Thing\nexit(1))\";\nexit(1);\n", 1),
    ("a.cc", "using namespace std;\n", 1),
    ("a.py", "exit(1)\n", 0),
]

# (texts of headers, number of types that two of them define)
HEADERS = [
    (["namespace e {\nstruct A {\n};\n}  // namespace e\n",
      "namespace e {\nclass A : public B {\n};\n}  // namespace e\n"], 1),
    (["namespace e {\nstruct A {};\n}  // namespace e\n",
      "namespace e {\nstruct A {};\n}  // namespace e\n"], 1),
    (["namespace e {\nclass A;\nstruct B {\n  struct A {\n  };\n};\n}  // namespace e\n",
      "namespace e {\ntemplate <class T> struct A {\n};\n}  // namespace e\n"], 0),
    (["namespace e {\nenum class A : int {\n};\n}  // namespace e\n",
      "namespace f {\nenum class A : int {\n};\n}  // namespace f\n"], 0),
    (["namespace e {\nnamespace f {\nstruct A {\n};\n}  // namespace f\n"
      "struct B {\n};\n}  // namespace e\n",
      "namespace e::f {\nstruct A {\n};\n}  // namespace e::f\n",
      "namespace e {\nstruct B {\n};\nnamespace {\nstruct C {\n};\n}  // namespace\n"
      "}  // namespace e\n",
      "namespace e {\nnamespace {\nstruct C {\n};\n}  // namespace\n}  // namespace e\n"], 2),
]


def main():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("budgets", "scripts/budgets")
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("budgets", loader))
    loader.exec_module(script)
    failed = 0
    for path, text, wanted in CASES:
        found = list(script.findings(path, text))
        if len(found) != wanted:
            failed += 1
            print(f"{path} {text[:60]!r}: {found}, wanted {wanted}")
    for texts, wanted in HEADERS:
        found = list(script.repeated([(f"{i}.h", text) for i, text in enumerate(texts)]))
        if len(found) != wanted:
            failed += 1
            print(f"{texts}: {found}, wanted {wanted}")
    print(f"{len(CASES) + len(HEADERS) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
