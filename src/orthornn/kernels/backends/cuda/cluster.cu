// The dense chain of sizes that one multiprocessor cannot hold, or is slower for: a cluster of BLOCKS thread blocks has W in
// its registers and shared memory, SHARE rows a block, and takes one sequence through all steps. For activations on single
// units.
//
// Compiled at run time by NVRTC with the macros of recurrence.cuh and THREADS, LANES1, HELD1 (product.cuh).
//
// Every block has the whole state, computes its share of the next one, and stores it to all blocks, where a barrier counts
// what has arrived. A state lies in one of two places by turns. When a block stores a share of h_{t+1} where h_{t-1} was, it
// has all of h_t, so that every block has sent its share of h_t, which it does when all its threads have read h_{t-1}. Shares
// have two places likewise: a warp may still be reading one to send it when others of its block compute the next.
#include "device.cuh"
#include "product.cuh"
#include "recurrence.cuh"

using Out = Product<SHARE, N, LANES1, HELD1>;
constexpr int PASSES = Out::PASSES;
constexpr int STATE = round_up(Out::VECTOR > BLOCKS * SHARE ? Out::VECTOR : BLOCKS * SHARE, 4);

// The places of one block in shared memory.
struct Memory {
    Barrier* barriers;  // [2]
    float* states;      // [2][STATE]: what a step reads, and what the next one will
    float* shares;      // [2][SHARE]: this block's part of a state, before it is sent
    float4* weights;

    __device__ explicit Memory(float4* all)
        : barriers(reinterpret_cast<Barrier*>(all)),
          states(reinterpret_cast<float*>(all + 1)),
          shares(states + 2 * STATE),
          weights(all + 1 + (2 * STATE + 2 * SHARE) / 4) {}

    // Place of the state before step t.
    __device__ float* state(int t) const { return states + t % 2 * STATE; }

    // Place of this block's part of it.
    __device__ float* share(int t) const { return shares + t % 2 * SHARE; }

    __device__ void expect(int t) const {
        if (threadIdx.x == 0) barrier_expect(barriers + t % 2, 4 * BLOCKS * SHARE);
    }

    // All zeros, and barriers that expect the states before steps 1 and 2.
    __device__ void begin() const {
        for (int k = threadIdx.x; k < 2 * STATE + 2 * SHARE; k += THREADS) states[k] = 0.0f;
        if (threadIdx.x == 0) barrier_begin(barriers), barrier_begin(barriers + 1);
        expect(1), expect(2);
        cluster_meet();
    }

    // Returns when the state before step t >= 1 is there.
    __device__ void receive(int t) const {
        barrier_wait(barriers + t % 2, (t - 1) / 2 % 2);
        expect(t + 2);
    }

    // This block's share of the state before step t >= 1, to all blocks.
    __device__ void send(int t, int rank) const {
        constexpr int QUARTERS = SHARE / 4;
        __syncthreads();
        for (int k = threadIdx.x; k < QUARTERS * BLOCKS; k += THREADS) {
            const int quarter = k % QUARTERS;
            const float4 part = reinterpret_cast<const float4*>(share(t))[quarter];
            store_remote(state(t) + rank * SHARE + 4 * quarter, k / QUARTERS, part, barriers + t % 2);
        }
    }
};

// The first of this block's rows, and how many there are.
__device__ inline int first_row() { return cluster_rank() * SHARE; }
__device__ inline int rows() { return N - first_row() < SHARE ? N - first_row() : SHARE; }

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) forward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const int rank = cluster_rank(), first = first_row(), b = blockIdx.x / BLOCKS;
    const int length = a.lengths ? a.lengths[b] : a.steps;
    Out out;
    out.load(a.first + (size_t)first * N, rows(), N, 1, memory.weights);
    memory.begin();
    for (int i = threadIdx.x; i < N; i += THREADS) memory.state(0)[i] = a.h0[(size_t)b * N + i];
    size_t here = begin_of(a, 0, b, N);
    bool own[PASSES];
    Row x[PASSES];  // of the next step, read a step before it
    float parameter[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        own[p] = out.owns(p) && out.row(p) < rows();
        x[p] = own[p] ? a.x[here + first + out.row(p)] : Row();
        parameter[p] = own[p] ? parameter_of(a, first + out.row(p)) : 0.0f;
    }
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < length; ++t) {
        const bool is_next = t + 1 < length;
        const size_t next = is_next ? begin_of(a, t, b, N, here, 1) : 0;
        if (t > 0) memory.receive(t);
        float sums[PASSES];
        out.multiply(memory.state(t), sums);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if (!own[p]) continue;
            const int i = first + out.row(p);
            const float value = sums[p] + wide(x[p]), h = phi(value, 0.0f, i, parameter[p], a.slope);
            if (is_next) x[p] = a.x[next + i];
            memory.share(t + 1)[out.row(p)] = h;
            if (KEEP) store(a.saved + here + i, value);
            store(a.states + here + i, h);
        }
        if (is_next) memory.send(t + 1, rank);
        here = next;
    }
}

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) backward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const int rank = cluster_rank(), first = first_row(), b = blockIdx.x / BLOCKS;
    const int length = a.lengths ? a.lengths[b] : a.steps;
    Out out;
    out.load(a.first + first, rows(), 1, N, memory.weights);
    memory.begin();
    size_t here = begin_of(a, length - 1, b, N);
    bool own[PASSES];
    Row saved[PASSES], grad[PASSES];  // of the next step, read a step before it; LAST: of the first step alone
    float parameter[PASSES], sum[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        const int i = first + out.row(p);
        own[p] = out.owns(p) && out.row(p) < rows();
        saved[p] = own[p] ? a.saved_rows[here + i] : Row();
        grad[p] = own[p] ? a.x[(LAST ? (size_t)b * N : here) + i] : Row();
        parameter[p] = own[p] ? parameter_of(a, i) : 0.0f;
        sum[p] = 0.0f;
    }
#pragma unroll 1
    for (int step = 0; step < length; ++step) {  // steps are counted from the last one
        const bool is_next = step + 1 < length;
        const size_t next = is_next ? begin_of(a, length - 1 - step, b, N, here, -1) : 0;
        if (step > 0) memory.receive(step);
        float sums[PASSES];
        out.multiply(memory.state(step), sums);  // of zeros in the first one
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if (!own[p]) continue;
            const int i = first + out.row(p);
            const float carry = (step > 0 ? sums[p] : 0.0f) + wide(grad[p]);
            float grad_p;
            float d = phi_backward(carry, 0.0f, wide(saved[p]), 0.0f, i, parameter[p], a.slope, grad_p);
            if (LAST) grad[p] = Row();
            if (is_next) {
                saved[p] = a.saved_rows[next + i];
                if (!LAST) grad[p] = a.x[next + i];
            }
            sum[p] += grad_p;
            if (CLIP) d = d > a.clip ? a.clip : d < -a.clip ? -a.clip : d;
            memory.share(step + 1)[out.row(p)] = d;
            a.delta[here + i] = d;
        }
        memory.send(step + 1, rank);
        here = next;
    }
    memory.receive(length);
    float sums[PASSES];
    out.multiply(memory.state(length), sums);
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        if (!own[p]) continue;
        const size_t at = (size_t)b * N + first + out.row(p);
        a.grad_h0[at] = sums[p];
        if (UNIT) a.grad_parameter[at] = sum[p];
    }
}
