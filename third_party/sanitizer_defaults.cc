// Defaults of the sanitizers, linked into every test. Inert without them.
//
// Open MPI keeps what it allocates at start until the process ends.
extern "C" const char* __lsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libmpi\nleak:libpmix\nleak:libopen-pal\nleak:libprrte\n";
}
