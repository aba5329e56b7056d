// Runs a CUDA kernel of one-dimensional blocks on a CPU: every thread is a fiber, and a round runs each of them once up
// to its next barrier or shuffle, in an order drawn anew for each round. So results that hang on an order between two
// barriers (a missing barrier) differ from run to run, and threads that meet at different places are found.
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
#define SHARED_MEMORY(type, name) type* name = reinterpret_cast<type*>(emulation::shared)

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Index {
    int x;
};
static Index threadIdx, blockIdx;

namespace emulation {
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
    char waits;
    int shuffles;
};
static std::vector<Fiber> fibers;
static std::vector<float> slots[2];
static ucontext_t scheduler;
static char* shared;
static void (*body)();

static void wait(char what) {
    Fiber& self = fibers[threadIdx.x];
    self.waits = what;
    swapcontext(&self.context, &scheduler);
}
static void start() {
    body();
    fibers[threadIdx.x].done = true;
    wait('e');
}
static void run(int blocks, int threads, int bytes, unsigned seed, void (*kernel)()) {
    std::mt19937 random(seed);
    body = kernel;
    std::vector<int> order(threads);
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        fibers = std::vector<Fiber>(threads);
        slots[0].assign(threads, NAN), slots[1].assign(threads, NAN);
        std::vector<float> memory(bytes / 4 + 4, NAN);
        shared = reinterpret_cast<char*>(((size_t)memory.data() + 15) / 16 * 16);
        for (int t = 0; t < threads; ++t) {
            order[t] = t;
            Fiber& fiber = fibers[t];
            fiber.stack.resize(1 << 16), fiber.done = false, fiber.shuffles = 0;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, start, 0);
        }
        while (!fibers[0].done) {
            std::shuffle(order.begin(), order.end(), random);
            for (int t : order) {
                threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t].context);
            }
            for (Fiber& fiber : fibers)
                if (fiber.waits != fibers[0].waits) fprintf(stderr, "threads wait at different places\n"), abort();
        }
    }
}
}  // namespace emulation

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline void __syncthreads() { emulation::wait('b'); }
inline float __shfl_xor_sync(unsigned, float value, int mask) {
    const int t = threadIdx.x, turn = emulation::fibers[t].shuffles++ % 2;
    emulation::slots[turn][t] = value;
    emulation::wait('s');
    return emulation::slots[turn][t ^ mask];
}

#include CHAIN

static Arguments arguments;
extern "C" void launch(int is_forward, int blocks, int bytes, unsigned seed, const Arguments* given) {
    arguments = *given;
    emulation::run(blocks, THREADS, bytes, seed, is_forward ? +[] { forward(arguments); } : +[] { backward(arguments); });
}
