// Threads, memory and interruption, compiled once for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace orthornn {

using Task = void (*)(void* data, int part);

// task(data, i) for every i < parts on at most `threads` threads, part 0 on the calling thread. The threads are those of
// the OpenMP runtime that the process has already loaded; where there is none, the parts run one after another.
void parallel(int parts, int threads, Task task, void* data);

// Name and path of that runtime, or null.
const char* threading_runtime();

// Whether work should stop. The thread that called `parallel`, whichever parts it does, asks the callback; the others read
// the flag.
bool should_stop(Interrupt* interrupt);

// While it lives, denormal numbers count as zero on this thread and on those that `parallel` puts to work. A state that
// decays in silence, and a gradient on its way back through thousands of steps, may fall below 1e-38, where each operation
// would be many times slower.
// It ends where the kernel that needs it ends: a signal handler that runs meanwhile gets the caller's mode (arguments.hpp).
class FlushDenormals {
public:
    FlushDenormals();
    ~FlushDenormals();
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
    std::uint64_t before_;
    bool outermost_;
};

// Sets for each thread that `parallel` would put to work on as many parts whether denormal numbers count as zero there, from
// now on. Part i is thread i; the calling thread is the first. Returns what was so before: the same again undoes it.
std::vector<bool> exchange_denormals(const std::vector<bool>& as_zero);

// How this thread computes: its rounding, and whether denormal numbers count as zero.
std::uint64_t arithmetic_mode();
void set_arithmetic_mode(std::uint64_t mode);

// Memory aligned to 64 bytes, with 64 bytes of slack; throws std::bad_alloc.
void* allocate(std::size_t bytes);
void release(void* memory);

// Lets the GNU C library keep up to 64 MiB that were freed for the calls to come, and take arrays of up to 32 MiB from there.
// At first it returns them to the system, and the next call has a page fault for each 4 KiB of them: 7 of 19 ms (n = m = 512,
// B = 1, T = 8, forward and backward). It raises these limits by itself when an array of this size is freed, as most programs
// do sooner or later; one is freed here that was never touched. Without effect where MALLOC_TRIM_THRESHOLD_ or
// MALLOC_MMAP_THRESHOLD_ is set.
void keep_freed_memory();

// Asks the system to put pages of 2 MiB behind memory that is about to be written for the first time: a sequence's states
// lie on fresh pages at every call, and a page fault for each 4 KiB of them takes as long as a quarter of the recurrence.
// Without effect where the system has no such pages.
void ask_for_large_pages(void* memory, std::size_t bytes);

std::size_t level1_bytes();  // of the data cache

}  // namespace orthornn
