// Runs a CUDA kernel of one-dimensional blocks on a CPU: every thread of a cluster of BLOCKS blocks is a fiber, and a round
// runs each of them once up to its next barrier or shuffle, in an order drawn anew for each round. So results that hang on
// an order between two barriers (a missing barrier) differ from run to run, and threads that meet at different places are
// found. What is stored to another block comes there at once or, with an odd seed, as late as the barriers allow.
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <random>
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
    int shuffles, arrivals;
};
struct Store {
    float* at;
    float4 value;
    int arrival;  // the arrival before which it was made
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
static void deliver(int arrival) {  // the stores before this arrival
    std::vector<Store> rest;
    for (const Store& one : stores)
        if (one.arrival <= arrival) *reinterpret_cast<float4*>(one.at) = one.value;
        else rest.push_back(one);
    stores.swap(rest);
}
static void run(const int* blocks, int threads, int bytes, unsigned seed, void (*kernel)()) {
    std::mt19937 random(seed);
    body = kernel, late = seed % 2;
    std::vector<int> order(threads * BLOCKS);
    for (int first = 0; first < blocks[0] * blocks[1] * blocks[2]; first += BLOCKS) {
        fibers = std::vector<Fiber>(order.size());
        slots[0].assign(order.size(), NAN), slots[1].assign(order.size(), NAN);
        std::vector<std::vector<float>> memory(BLOCKS, std::vector<float>(bytes / 4 + 4, NAN));
        memories.clear();
        for (auto& one : memory) memories.push_back(reinterpret_cast<char*>(((size_t)one.data() + 15) / 16 * 16));
        for (int t = 0; t < (int)order.size(); ++t) {
            order[t] = t;
            Fiber& fiber = fibers[t];
            const int block = first + t / threads;
            fiber.thread = {t % threads, 0, 0};
            fiber.block = {block % blocks[0], block / blocks[0] % blocks[1], block / blocks[0] / blocks[1]};
            fiber.rank = t / threads, fiber.shared = memories[fiber.rank];
            fiber.stack.resize(1 << 16), fiber.done = false, fiber.shuffles = fiber.arrivals = 0;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, start, 0);
        }
        while (!fibers[0].done) {
            std::shuffle(order.begin(), order.end(), random);
            for (int t : order) {
                current = t, threadIdx = fibers[t].thread, blockIdx = fibers[t].block;
                swapcontext(&scheduler, &fibers[t].context);
            }
            for (Fiber& fiber : fibers)
                if (fiber.waits != fibers[0].waits || fiber.arrivals != fibers[0].arrivals)
                    fprintf(stderr, "threads wait at different places\n"), abort();
            if (fibers[0].waits == 'c') deliver(fibers[0].arrivals);
        }
        if (!stores.empty()) fprintf(stderr, "a block ends before its stores have arrived\n"), abort();
    }
}
}  // namespace emulation

inline int cluster_rank() { return emulation::own().rank; }
inline void cluster_arrive() { ++emulation::own().arrivals; }
inline void cluster_wait() { emulation::wait('c'); }
inline void store_remote(float* at, int rank, float4 value) {
    emulation::Fiber& self = emulation::own();
    float* there = reinterpret_cast<float*>(emulation::memories[rank] + (reinterpret_cast<char*>(at) - self.shared));
    if (emulation::late) emulation::stores.push_back({there, value, self.arrivals + 1});
    else *reinterpret_cast<float4*>(there) = value;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
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
