#pragma once

namespace equipoise {

// A thread that takes the signals sent to the process, so that no other one runs their handlers.
//
// Threads that compute must not: kernels that oneDNN compiles at run time for its fp32 products use
// the stack pointer as one more register, and the kernel of the system would write a handler's
// frame to the memory that it points to (seen with 2.6 on CPUs with AVX-512: one signal damages the
// heap or the product). Signals that a thread brings upon itself, such as SIGSEGV and SIGPIPE, stay
// its own.

// Starts that thread. Blocks the signals in the calling thread and so in all that it starts: call
// it before any other is there. What the calling thread had blocked is held back. At most once.
void TakeSignalsOnOwnThread();

// Holds a signal back, so that it is pending from here on, or no longer; returns whether it was
// held back. Where there is no such thread, in the calling one. Not for signal handlers.
bool HoldBackSignal(int signal, bool held);

}  // namespace equipoise
