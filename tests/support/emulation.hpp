// Runs a CUDA kernel of one-dimensional blocks on a CPU: every thread of a cluster of BLOCKS blocks is a fiber, and a turn runs
// the 32 of one warp, in an order drawn for each turn, up to their next barrier or shuffle. Any warp takes the next turn that
// can go on, but one of them, drawn from time to time, only if no other can. So results that hang on an order between two
// barriers (a missing barrier) differ from run to run, and threads of a warp that meet at different places are found. What is
// stored to another block comes there at once or, with an odd seed, as late as the barriers allow.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <bit>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(...)
#define SHARED_MEMORY(type, name) type* name = reinterpret_cast<type*>(emulation::own().shared)
#define CLUSTER_OF(blocks)
#ifndef BLOCKS
#define BLOCKS 1
#endif

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Index {
    int x, y, z;
};
static Index threadIdx, blockIdx;

namespace emulation {
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Index thread, block;
    char* shared;  // of its block
    int rank;      // of its block in the cluster
    bool done;
    char waits;
    int shuffles;
    void* barrier;  // that it waits for
    int phase;
};
constexpr int WARP = 32, HELD_BACK = 400;  // turns at most that one warp waits for the others
struct Warp {
    Fiber* fibers;
    int rank;              // of its block in the cluster
    int blocks, clusters;  // barriers of its block and of the cluster that it has come to
};
struct Store {
    float* at;
    float4 value;
    void* barrier;
};
static std::vector<Fiber> fibers;
static std::vector<float> slots[2];
static std::vector<Store> stores;
static std::vector<char*> memories;
static ucontext_t scheduler;
static bool late;
static int current;
static void (*body)();

static Fiber& own() { return fibers[current]; }
static void wait(char what) {
    Fiber& self = own();
    self.waits = what;
    swapcontext(&self.context, &scheduler);
}
static void start() {
    body();
    own().done = true;
    wait('e');
}
static void receive(const Store& store);
static bool has_passed(const Fiber& fiber);
static void deliver(void* barrier) {  // what counts for it
    std::vector<Store> rest;
    for (const Store& one : stores)
        if (one.barrier == barrier) receive(one);
        else rest.push_back(one);
    stores.swap(rest);
}
struct Random {  // SplitMix64, as <random> would be half of each compilation
    unsigned long long state;
    unsigned operator()() {
        unsigned long long z = state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z >> 32;
    }
};
static void run(const int* blocks, int threads, int bytes, unsigned seed, void (*kernel)()) {
    Random random{seed};
    body = kernel, late = seed % 2;
    if (threads % WARP) fprintf(stderr, "%d threads are no whole warps\n", threads), abort();
    int order[WARP];
    for (int t = 0; t < WARP; ++t) order[t] = t;
    for (int first = 0; first < blocks[0] * blocks[1] * blocks[2]; first += BLOCKS) {
        fibers = std::vector<Fiber>(threads * BLOCKS);
        slots[0].assign(fibers.size(), NAN), slots[1].assign(fibers.size(), NAN);
        std::vector<std::vector<float>> memory(BLOCKS, std::vector<float>(bytes / 4 + 4, NAN));
        memories.clear();
        for (auto& one : memory) memories.push_back(reinterpret_cast<char*>(((size_t)one.data() + 15) / 16 * 16));
        for (int t = 0; t < (int)fibers.size(); ++t) {
            Fiber& fiber = fibers[t];
            const int block = first + t / threads;
            fiber.thread = {t % threads, 0, 0};
            fiber.block = {block % blocks[0], block / blocks[0] % blocks[1], block / blocks[0] / blocks[1]};
            fiber.rank = t / threads, fiber.shared = memories[fiber.rank];
            fiber.stack.resize(1 << 16), fiber.done = false, fiber.waits = 0, fiber.shuffles = 0;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, start, 0);
        }
        std::vector<Warp> warps;
        for (int t = 0; t < (int)fibers.size(); t += WARP) warps.push_back({&fibers[t], t / threads, 0, 0});
        const auto can_go_on = [&](const Warp& warp) {
            const char waits = warp.fibers->waits;
            bool all = true;
            for (int t = 0; t < WARP && waits == 'm'; ++t) all &= has_passed(warp.fibers[t]);
            for (const Warp& other : warps) {
                if (waits == 'b') all &= other.rank != warp.rank || other.fibers->done || other.blocks >= warp.blocks;
                if (waits == 'c') all &= other.fibers->done || other.clusters >= warp.clusters;
            }
            return all;
        };
        for (int held_back = 0, turns = 0;;) {
            std::vector<Warp*> ready, waiting;
            for (Warp& warp : warps)
                if (!warp.fibers->done) (can_go_on(warp) ? ready : waiting).push_back(&warp);
            if (ready.empty() && waiting.empty()) break;
            if (ready.empty()) {
                const size_t before = stores.size();
                for (const Warp* warp : waiting)
                    if (warp->fibers->waits == 'm') deliver(warp->fibers->barrier);
                if (stores.size() == before) fprintf(stderr, "a barrier never ends\n"), abort();
                continue;
            }
            if (--turns < 0) held_back = random() % warps.size(), turns = random() % HELD_BACK;
            if (ready.size() > 1) std::erase(ready, &warps[held_back]);
            Warp& warp = *ready[random() % ready.size()];
            for (int t = WARP - 1; t > 0; --t) std::swap(order[t], order[random() % (t + 1)]);
            for (int t : order) {
                current = warp.fibers + t - fibers.data(), threadIdx = own().thread, blockIdx = own().block;
                swapcontext(&scheduler, &own().context);
            }
            for (int t = 0; t < WARP; ++t)
                if (warp.fibers[t].waits != warp.fibers->waits) fprintf(stderr, "threads wait at different places\n"), abort();
            warp.blocks += warp.fibers->waits == 'b', warp.clusters += warp.fibers->waits == 'c';
        }
        if (!stores.empty()) fprintf(stderr, "a block ends before its stores have arrived\n"), abort();
    }
}
}  // namespace emulation

inline int cluster_rank() { return emulation::own().rank; }
inline void cluster_meet() { emulation::wait('c'); }
struct Barrier {
    int bytes;
    short arrivals, phase;

    void check() {
        if (arrivals == 0 && bytes == 0) arrivals = 1, phase ^= 1;
    }
};
inline void barrier_begin(Barrier* barrier) { *barrier = {0, 1, 0}; }
inline void barrier_expect(Barrier* barrier, int bytes) {
    if (barrier->arrivals-- != 1) fprintf(stderr, "a barrier is armed twice\n"), abort();
    barrier->bytes += bytes;
    barrier->check();
}
inline void barrier_wait(Barrier* barrier, int phase) {
    emulation::own().barrier = barrier, emulation::own().phase = phase;
    emulation::wait('m');
}
inline void store_remote(float* at, int rank, float4 value, Barrier* barrier) {
    emulation::Fiber& self = emulation::own();
    const auto there = [&](void* own) { return emulation::memories[rank] + (reinterpret_cast<char*>(own) - self.shared); };
    const emulation::Store store{reinterpret_cast<float*>(there(at)), value, there(barrier)};
    if (emulation::late) emulation::stores.push_back(store);
    else emulation::receive(store);
}
void emulation::receive(const Store& store) {
    *reinterpret_cast<float4*>(store.at) = store.value;
    Barrier* barrier = reinterpret_cast<Barrier*>(store.barrier);
    barrier->bytes -= 16;
    barrier->check();
}
bool emulation::has_passed(const Fiber& fiber) {
    return reinterpret_cast<const Barrier*>(fiber.barrier)->phase != fiber.phase;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float select(bool which, float a, float b) { return which ? a : b; }
inline void __syncthreads() { emulation::wait('b'); }
inline float __shfl_xor_sync(unsigned, float value, int mask) {
    const int t = emulation::current, turn = emulation::own().shuffles++ % 2;
    emulation::slots[turn][t] = value;
    emulation::wait('s');
    return emulation::slots[turn][t ^ mask];
}

#include SOURCE

static Arguments arguments;
extern "C" void launch(int which, const int* blocks, int bytes, unsigned seed, const Arguments* given) {
    arguments = *given;
    emulation::run(blocks, THREADS, bytes, seed, which ? +[] { KERNEL1(arguments); } : +[] { KERNEL0(arguments); });
}
