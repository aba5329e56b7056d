// The dense chain of sizes that one multiprocessor cannot hold: a cluster of BLOCKS thread blocks has W in its registers
// and shared memory, SHARE rows a block, and takes SLOTS sequences through all steps. For activations on single units.
//
// Compiled at run time by NVRTC with the macros of recurrence.cuh and THREADS, LANES1, HELD1 (product.cuh).
//
// Every block has the whole state of each sequence, computes its share of the next one, and stores it to all blocks.
// A barrier of the cluster follows, whose two halves (arrive, wait) lie apart where there are several sequences: these
// form two groups, and while the shares of one are on their way the other is computed.
//
//     group 0: step t   group 1: step t   group 0: step t + 1   ...
//                       wait for 0        wait for 1            (each arrives at the barrier after its wait)
#include "device.cuh"
#include "product.cuh"
#include "recurrence.cuh"

using Out = Product<SHARE, N, LANES1, HELD1>;
constexpr int PASSES = Out::PASSES;
constexpr int STATE = round_up(Out::VECTOR > BLOCKS * SHARE ? Out::VECTOR : BLOCKS * SHARE, 4);
constexpr int TURNS = SLOTS > 1 ? 2 : 1;                 // groups of sequences
constexpr int OF_FIRST = (SLOTS + TURNS - 1) / TURNS;    // sequences of the first group
constexpr int AHEAD = 2;                                 // sequences' rows that are read ahead of their turn

// The places of one block's sequences in shared memory.
struct Memory {
    float* states;  // [2][SLOTS][STATE]: what a step reads, and what the next one will
    float* shares;  // [SLOTS][SHARE]: this block's part, before it is sent
    float* carry;   // [SLOTS][SHARE]: dL/dparameter so far
    float4* weights;

    __device__ explicit Memory(float4* all) {
        states = reinterpret_cast<float*>(all);
        shares = states + 2 * SLOTS * STATE;
        carry = shares + SLOTS * SHARE;
        weights = all + (2 * SLOTS * STATE + 2 * SLOTS * SHARE) / 4;
    }

    __device__ float* state(int parity, int slot) const { return states + (parity * SLOTS + slot) * STATE; }

    __device__ void clear() const {
        for (int k = threadIdx.x; k < 2 * SLOTS * (STATE + SHARE); k += THREADS) states[k] = 0.0f;
    }

    // The shares of slots [from, to) to all blocks, as the states of the given parity.
    __device__ void send(int parity, int from, int to, int rank) const {
        constexpr int QUARTERS = SHARE / 4;
        for (int k = threadIdx.x; k < (to - from) * QUARTERS * BLOCKS; k += THREADS) {
            const int quarter = k % QUARTERS, block = k / QUARTERS % BLOCKS, slot = from + k / QUARTERS / BLOCKS;
            const float4 part = reinterpret_cast<const float4*>(shares + slot * SHARE)[quarter];
            store_remote(state(parity, slot) + rank * SHARE + 4 * quarter, block, part);
        }
    }
};

__device__ inline int length_of(const Arguments& a, int b) {
    return b >= a.batch ? 0 : a.lengths ? a.lengths[b] : a.steps;
}

// The order in which a block meets its sequences: step 0 of slots 0 ... SLOTS - 1, then step 1 of them.
struct Turn {
    int step, slot;

    __device__ void advance() {
        if (++slot == SLOTS) slot = 0, ++step;
    }
};

__device__ inline void end_of_turn(int& done) {
    if (TURNS == 1) cluster_arrive(), cluster_wait();
    else {
        if (done++ > 0) cluster_wait();
        cluster_arrive();
    }
}

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) forward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const int rank = cluster_rank(), first = rank * SHARE, b0 = blockIdx.x / BLOCKS * SLOTS;
    Out out;
    out.load(a.first + (size_t)first * N, N - first < SHARE ? N - first : SHARE, N, 1, memory.weights);
    memory.clear();
    __syncthreads();
    for (int slot = 0; slot < SLOTS; ++slot)
        if (b0 + slot < a.batch)
            for (int i = threadIdx.x; i < N; i += THREADS) memory.state(0, slot)[i] = a.h0[(size_t)(b0 + slot) * N + i];
    float parameter[PASSES], x[AHEAD][PASSES];
    const int longest = length_of(a, b0);
    const auto read = [&](const Turn& turn, float (&values)[PASSES]) {
        const int b = b0 + turn.slot;
        const bool there = turn.step < longest && turn.step < length_of(a, b);
        const size_t row = there ? row_of(a, turn.step, b) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const int i = first + out.row(p);
            values[p] = there && out.owns(p) && i < N ? wide(a.x[row * N + i]) : 0.0f;
        }
    };
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
        parameter[p] = out.owns(p) && first + out.row(p) < N ? parameter_of(a, first + out.row(p)) : 0.0f;
    Turn next{0, 0};
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) read(next, x[k]), next.advance();
    cluster_arrive();
    cluster_wait();
    int done = 0;
    for (int t = 0; t < longest; ++t) {
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            const int from = turn ? OF_FIRST : 0, to = turn || TURNS == 1 ? SLOTS : OF_FIRST;
#pragma unroll 1
            for (int slot = from; slot < to; ++slot) {
                const int b = b0 + slot;
                float ahead[PASSES];
                read(next, ahead), next.advance();
                if (t < length_of(a, b)) {
                    const size_t row = row_of(a, t, b);
                    float sums[PASSES];
                    out.multiply(memory.state(t % 2, slot), sums);
#pragma unroll
                    for (int p = 0; p < PASSES; ++p) {
                        const int i = first + out.row(p);
                        if (!out.owns(p) || i >= N) continue;
                        const float value = sums[p] + x[0][p];
                        if (KEEP) store(a.saved + row * N + i, value);
                        const float h = phi(value, 0.0f, i, parameter[p], a.slope);
                        memory.shares[slot * SHARE + out.row(p)] = h;
                        store(a.states + row * N + i, h);
                    }
                }
#pragma unroll
                for (int p = 0; p < PASSES; ++p) {
#pragma unroll
                    for (int k = 0; k + 1 < AHEAD; ++k) x[k][p] = x[k + 1][p];
                    x[AHEAD - 1][p] = ahead[p];
                }
            }
            __syncthreads();
            memory.send(1 - t % 2, from, to, rank);
            end_of_turn(done);
        }
    }
    if (TURNS > 1 && done > 0) cluster_wait();
}

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) backward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const int rank = cluster_rank(), first = rank * SHARE, b0 = blockIdx.x / BLOCKS * SLOTS;
    Out out;
    out.load(a.first + first, N - first < SHARE ? N - first : SHARE, 1, N, memory.weights);
    memory.clear();
    float parameter[PASSES], saved[AHEAD][PASSES], grad[AHEAD][PASSES];
    const int longest = length_of(a, b0);
    // The rows of a turn; with LAST the gradient of the last state comes with the first one.
    const auto read = [&](const Turn& turn, float (&values)[PASSES], float (&grads)[PASSES]) {
        const int b = b0 + turn.slot, length = turn.step < longest ? length_of(a, b) : 0;
        const bool there = turn.step < length;
        const size_t row = there ? row_of(a, length - 1 - turn.step, b) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const int i = first + out.row(p);
            const bool own = there && out.owns(p) && i < N;
            values[p] = own ? wide(a.saved_rows[row * N + i]) : 0.0f;
            grads[p] = own && (!LAST || turn.step == 0) ? wide(a.x[(LAST ? (size_t)b : row) * N + i]) : 0.0f;
        }
    };
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
        parameter[p] = out.owns(p) && first + out.row(p) < N ? parameter_of(a, first + out.row(p)) : 0.0f;
    Turn next{0, 0};
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) read(next, saved[k], grad[k]), next.advance();
    cluster_arrive();
    cluster_wait();
    int done = 0;
    for (int step = 0; step < longest; ++step) {
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            const int from = turn ? OF_FIRST : 0, to = turn || TURNS == 1 ? SLOTS : OF_FIRST;
#pragma unroll 1
            for (int slot = from; slot < to; ++slot) {
                const int b = b0 + slot, length = length_of(a, b);
                float next_saved[PASSES], next_grad[PASSES];
                read(next, next_saved, next_grad), next.advance();
                if (step < length) {
                    const size_t row = row_of(a, length - 1 - step, b);
                    float sums[PASSES];
                    out.multiply(memory.state(step % 2, slot), sums);  // of zeros in the first step
#pragma unroll
                    for (int p = 0; p < PASSES; ++p) {
                        const int i = first + out.row(p), own = slot * SHARE + out.row(p);
                        if (!out.owns(p) || i >= N) continue;
                        const float carry = step > 0 ? sums[p] + grad[0][p] : grad[0][p];
                        float grad_p;
                        float d = phi_backward(carry, 0.0f, saved[0][p], 0.0f, i, parameter[p], a.slope, grad_p);
                        if (UNIT) memory.carry[own] += grad_p;
                        if (CLIP) d = d > a.clip ? a.clip : d < -a.clip ? -a.clip : d;
                        memory.shares[own] = d;
                        a.delta[row * N + i] = d;
                    }
                }
#pragma unroll
                for (int p = 0; p < PASSES; ++p) {
#pragma unroll
                    for (int k = 0; k + 1 < AHEAD; ++k)
                        saved[k][p] = saved[k + 1][p], grad[k][p] = grad[k + 1][p];
                    saved[AHEAD - 1][p] = next_saved[p], grad[AHEAD - 1][p] = next_grad[p];
                }
            }
            __syncthreads();
            memory.send(1 - step % 2, from, to, rank);
            end_of_turn(done);
        }
    }
    if (TURNS > 1 && done > 0) cluster_wait();
#pragma unroll 1
    for (int slot = 0; slot < SLOTS; ++slot) {
        const int b = b0 + slot;
        if (b >= a.batch) continue;
        float sums[PASSES];
        out.multiply(memory.state(length_of(a, b) % 2, slot), sums);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const int i = first + out.row(p);
            if (!out.owns(p) || i >= N) continue;
            a.grad_h0[(size_t)b * N + i] = sums[p];
            if (UNIT) a.grad_parameter[(size_t)b * N + i] = memory.carry[slot * SHARE + out.row(p)];
        }
    }
}
