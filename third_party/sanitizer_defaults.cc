// Defaults of the sanitizers, linked into every test. Inert without them.
//
// Open MPI keeps what it allocates at start until the process ends.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the sanitizer's name
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libmpi\nleak:libpmix\nleak:libopen-pal\nleak:libprrte\n";
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
