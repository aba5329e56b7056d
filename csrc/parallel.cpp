#include "parallel.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#if defined(__linux__) && !defined(ORTHORNN_WITHOUT_OPENMP)
#define ORTHORNN_FIND_OPENMP 1
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#else
#define ORTHORNN_FIND_OPENMP 0
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace orthornn {
namespace {

using Region = void (*)(void (*)(void*), void*, unsigned, unsigned);
using Count = int (*)();
using Pause = int (*)(int);

struct Runtime {
    Region region = nullptr;
    Count thread = nullptr, threads = nullptr;
    Pause pause = nullptr;  // since OpenMP 5
    std::string path;
};

#if ORTHORNN_FIND_OPENMP
// Adds the path of a loaded library that may be a runtime. The loader holds a lock meanwhile, which a thread that opens a
// library takes second: opening one from here could wait for that thread, and it for us.
int visit(dl_phdr_info* info, std::size_t, void* data) {
    const char* file = std::strrchr(info->dlpi_name, '/');
    file = file ? file + 1 : info->dlpi_name;
    for (const char* name : {"libgomp", "libomp", "libiomp5"})
        if (!std::strncmp(file, name, std::strlen(name)))
            static_cast<std::vector<std::string>*>(data)->push_back(info->dlpi_name);
    return 0;
}

// The runtime in a library that is loaded, or in what it depends on; without a region if there is none.
Runtime runtime_in(const char* path) {
    void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return {};
    // libomp and libiomp5 carry libgomp's entry points too.
    Runtime found{reinterpret_cast<Region>(dlsym(library, "GOMP_parallel")),
                  reinterpret_cast<Count>(dlsym(library, "omp_get_thread_num")),
                  reinterpret_cast<Count>(dlsym(library, "omp_get_num_threads")),
                  reinterpret_cast<Pause>(dlsym(library, "omp_pause_resource_all")), path};
    if (found.region && found.thread && found.threads) {  // keeps the library open
        Dl_info info;
        if (dladdr(reinterpret_cast<void*>(found.region), &info) && info.dli_fname) found.path = info.dli_fname;
        return found;
    }
    dlclose(library);
    return {};
}
#endif

const Runtime& runtime() {
    // Looked up once: the extension is imported after torch, which loads the runtime. Another package may have loaded one
    // of its own before, so that torch's library is asked first which one it calls.
    static const Runtime found = [] {
#if ORTHORNN_FIND_OPENMP
        if (Runtime r = runtime_in("libtorch_cpu.so"); r.region) return r;
        std::vector<std::string> paths;
        dl_iterate_phdr(visit, &paths);
        for (const std::string& path : paths)
            if (Runtime r = runtime_in(path.c_str()); r.region) return r;
#endif
        return Runtime{};
    }();
    return found;
}

// The rounding and denormal mode of the processor.
#if defined(__x86_64__)
using Mode = unsigned;
Mode mode() { return _mm_getcsr(); }
void set_mode(Mode m) { _mm_setcsr(m); }
constexpr Mode flushing = 0x8040;  // results, and operands
#elif defined(__aarch64__)
using Mode = std::uint64_t;
Mode mode() {
    Mode m;
    asm volatile("mrs %0, fpcr" : "=r"(m));
    return m;
}
void set_mode(Mode m) { asm volatile("msr fpcr, %0" : : "r"(m)); }
constexpr Mode flushing = Mode(1) << 24;
#else
using Mode = int;
Mode mode() { return 0; }
void set_mode(Mode) {}
constexpr Mode flushing = 0;
#endif

#if ORTHORNN_FIND_OPENMP
// A process that fork() makes has none of the runtime's threads, and libgomp, which does not know, would wait for them
// without end, whoever put them to work. So they are ended before a fork, and begun again when they are needed; where that
// cannot be, the new process works without threads.
bool without_threads = false;

[[maybe_unused]] const int watching_forks = [] {
    static bool ended;
    return pthread_atfork(
        [] {
            constexpr int keep_settings = 1;  // omp_pause_soft
            ended = runtime().pause && runtime().pause(keep_settings) == 0;
        },
        nullptr, [] { without_threads = without_threads || !ended; });
}();

bool threads_are_there() { return !without_threads; }
#else
bool threads_are_there() { return true; }
#endif

// The caller's mode, while a FlushDenormals lives on this thread.
struct Outside {
    bool flushing = false;
    Mode mode = 0;
};
thread_local Outside outside;

// Whether this thread works for another one, that called `parallel`.
thread_local bool helps = false;

struct Team {
    Task task;
    void* data;
    int parts;
    Mode mode;
};

struct Exchange {
    const std::vector<bool>& wanted;
    std::vector<char> before;  // not of bits: each thread writes its own
};

void exchange(void* data, std::size_t thread) {
    Exchange& of = *static_cast<Exchange*>(data);
    if (thread >= of.wanted.size()) return;
    const Mode own = mode();
    of.before[thread] = flushing != 0 && (own & flushing) == flushing;
    set_mode(of.wanted[thread] ? own | flushing : own & ~flushing);
}

void member(void* data) {
    const Team& team = *static_cast<Team*>(data);
    const Mode own = mode();
    set_mode(team.mode);
    const int threads = runtime().threads();
    helps = runtime().thread() != 0;
    for (int part = runtime().thread(); part < team.parts; part += threads) team.task(team.data, part);
    helps = false;
    set_mode(own);
}

}  // namespace

void parallel(int parts, int threads, Task task, void* data) {
    if (threads > parts) threads = parts;
    if (threads > 1 && runtime().region && threads_are_there()) {
        Team team{task, data, parts, mode()};
        if (outside.flushing) set_mode(outside.mode);  // which threads that start now have for good
        runtime().region(member, &team, static_cast<unsigned>(threads), 0);
        set_mode(team.mode);
        return;
    }
    for (int part = 0; part < parts; ++part) task(data, part);
}

std::vector<bool> exchange_denormals(const std::vector<bool>& as_zero) {
    Exchange of{as_zero, std::vector<char>(as_zero.size(), false)};
    if (as_zero.size() > 1 && runtime().region && threads_are_there())
        runtime().region([](void* data) { exchange(data, static_cast<std::size_t>(runtime().thread())); }, &of,
                         static_cast<unsigned>(as_zero.size()), 0);
    else
        exchange(&of, 0);
    return {of.before.begin(), of.before.end()};
}

FlushDenormals::FlushDenormals() : before_(mode()), outermost_(!outside.flushing) {
    if (outermost_) outside = {true, mode()};
    set_mode(mode() | flushing);
}

FlushDenormals::~FlushDenormals() {
    set_mode(static_cast<Mode>(before_));
    if (outermost_) outside = {};
}

std::uint64_t arithmetic_mode() { return mode(); }
void set_arithmetic_mode(std::uint64_t m) { set_mode(static_cast<Mode>(m)); }

const char* threading_runtime() { return runtime().region ? runtime().path.c_str() : nullptr; }

bool should_stop(Interrupt* interrupt) {
    if (!interrupt) return false;
    if (__atomic_load_n(&interrupt->stop, __ATOMIC_RELAXED)) return true;
    if (helps || !interrupt->poll || !interrupt->poll(interrupt->data)) return false;
    __atomic_store_n(&interrupt->stop, 1, __ATOMIC_RELAXED);
    return true;
}

void* allocate(std::size_t bytes) {
#if defined(_WIN32)
    void* memory = _aligned_malloc((bytes + 127) / 64 * 64, 64);
#else
    void* memory = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
#endif
    if (!memory) throw std::bad_alloc();
    return memory;
}

void release(void* memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    std::free(memory);
#endif
}

void keep_freed_memory() {
#if defined(__GLIBC__)
    constexpr std::size_t most = (std::size_t(32) << 20) - (std::size_t(1) << 16);  // of what counts, with room for its header
    void* volatile memory = std::malloc(most);  // volatile: or the compiler leaves both calls out
    std::free(memory);
#endif
}

void ask_for_large_pages(void* memory, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

std::size_t level1_bytes() {
#if defined(__linux__) && defined(_SC_LEVEL1_DCACHE_SIZE)
    static const long size = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    if (size > 0) return static_cast<std::size_t>(size);
#endif
    return 32768;
}

}  // namespace orthornn
