// The dense chain of sizes that one multiprocessor cannot hold: a cluster of BLOCKS thread blocks has W in its registers
// and shared memory, SHARE rows a block, and takes SLOTS sequences through all steps. For activations on single units.
//
// Compiled at run time by NVRTC with the macros of recurrence.cuh and THREADS, LANES1, HELD1 (product.cuh).
//
// Every block has the whole state of each sequence, computes its share of the next one, and stores it to all blocks. A
// barrier in each block counts what has arrived. Of several sequences there are two groups with barriers of their own:
// while the shares of one are on their way, the other is computed, all of its sequences in one product.
//
// A state lies in one of two places by turns. When a block stores a share of h_{t+1} where h_{t-1} was, it has all of
// h_t, so that every block has sent its share of h_t, which it does when all its threads have read h_{t-1}.
#include "device.cuh"
#include "product.cuh"
#include "recurrence.cuh"

using Out = Product<SHARE, N, LANES1, HELD1>;
constexpr int PASSES = Out::PASSES;
constexpr int STATE = round_up(Out::VECTOR > BLOCKS * SHARE ? Out::VECTOR : BLOCKS * SHARE, 4);
constexpr int GROUPS = SLOTS > 1 ? 2 : 1;                  // of sequences
constexpr int OF_FIRST = (SLOTS + GROUPS - 1) / GROUPS;    // sequences of the first group

// The places of one block in shared memory.
struct Memory {
    Barrier* barriers;  // [GROUPS][2], in the space of two groups
    float* states;      // [2][SLOTS][STATE]: what a step reads, and what the next one will
    float* shares;      // [SLOTS][SHARE]: this block's part, before it is sent
    float* sums;        // [SLOTS][SHARE]: dL/dparameter so far
    float4* weights;

    __device__ explicit Memory(float4* all) {
        barriers = reinterpret_cast<Barrier*>(all);
        states = reinterpret_cast<float*>(all + 2);
        shares = states + 2 * SLOTS * STATE;
        sums = shares + SLOTS * SHARE;
        weights = all + 2 + 2 * SLOTS * (STATE + SHARE) / 4;
    }

    __device__ float* state(int place, int slot) const { return states + (place * SLOTS + slot) * STATE; }

    __device__ static int first(int group) { return group ? OF_FIRST : 0; }
    __device__ static int end(int group) { return group || GROUPS == 1 ? SLOTS : OF_FIRST; }

    __device__ void expect(int group, int place) const {
        const int bytes = 4 * (end(group) - first(group)) * BLOCKS * SHARE;
        if (threadIdx.x == 0) barrier_expect(barriers + 2 * group + place, bytes);
    }

    // All zeros, and barriers that expect the shares of steps 1 and 2.
    __device__ void begin() const {
        for (int k = threadIdx.x; k < 2 * SLOTS * (STATE + SHARE); k += THREADS) states[k] = 0.0f;
        for (int k = 0; k < 2 * GROUPS; ++k) {
            if (threadIdx.x == 0) barrier_begin(barriers + k);
            expect(k / 2, k % 2);
        }
        cluster_meet();
    }

    // The state before step t >= 1 of a group is there.
    __device__ void receive(int group, int t) const {
        barrier_wait(barriers + 2 * group + t % 2, (t - 1) / 2 % 2);
        expect(group, t % 2);
    }

    // This block's shares of the state after step t of a group, to all blocks.
    __device__ void send(int group, int t, int rank) const {
        constexpr int QUARTERS = SHARE / 4;
        __syncthreads();
        for (int k = threadIdx.x; k < (end(group) - first(group)) * QUARTERS * BLOCKS; k += THREADS) {
            const int quarter = k % QUARTERS, block = k / QUARTERS % BLOCKS, slot = first(group) + k / QUARTERS / BLOCKS;
            const float4 part = reinterpret_cast<const float4*>(shares + slot * SHARE)[quarter];
            float* at = state(1 - t % 2, slot) + rank * SHARE + 4 * quarter;
            store_remote(at, block, part, barriers + 2 * group + 1 - t % 2);
        }
    }
};

// The products of W and the states of a group's sequences, in the places that belong to their slots.
template <int FIRST, int COUNT>
__device__ inline void multiply(const Out& out, const Memory& memory, int place, float (&sums)[SLOTS][PASSES]) {
    const float* vectors[COUNT];
    float found[COUNT][PASSES];
#pragma unroll
    for (int c = 0; c < COUNT; ++c) vectors[c] = memory.state(place, FIRST + c);
    out.multiply(vectors, found);
#pragma unroll
    for (int c = 0; c < COUNT; ++c)
#pragma unroll
        for (int p = 0; p < PASSES; ++p) sums[FIRST + c][p] = found[c][p];
}

__device__ inline void multiply(int group, const Out& out, const Memory& memory, int place, float (&sums)[SLOTS][PASSES]) {
    if (group == 0) multiply<0, OF_FIRST>(out, memory, place, sums);
#if SLOTS > 1
    else multiply<OF_FIRST, SLOTS - OF_FIRST>(out, memory, place, sums);
#endif
}

// The rows of this block, and the sequence of a slot.
struct Place {
    int rank, first, b0;

    __device__ Place() : rank(cluster_rank()), first(rank * SHARE), b0((int)blockIdx.x / BLOCKS * SLOTS) {}

    __device__ int rows() const { return N - first < SHARE ? N - first : SHARE; }
    __device__ bool owns(const Out& out, int p) const { return out.owns(p) && first + out.row(p) < N; }
    __device__ int length(const Arguments& a, int slot) const {
        return b0 + slot >= a.batch ? 0 : a.lengths ? a.lengths[b0 + slot] : a.steps;
    }
};

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) forward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const Place place;
    Out out;
    out.load(a.first + (size_t)place.first * N, place.rows(), N, 1, memory.weights);
    memory.begin();
    Row x[SLOTS][PASSES];  // of the next step, read a step before it
    float parameter[PASSES];
    int lengths[SLOTS];
    size_t here[SLOTS];  // where a slot's row of this step begins
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
        lengths[slot] = place.length(a, slot);
        here[slot] = lengths[slot] > 0 ? begin_of(a, 0, place.b0 + slot, N) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            x[slot][p] = lengths[slot] > 0 && place.owns(out, p) ? a.x[here[slot] + place.first + out.row(p)] : Row();
        if (lengths[slot] > 0)
            for (int i = threadIdx.x; i < N; i += THREADS)
                memory.state(0, slot)[i] = a.h0[(size_t)(place.b0 + slot) * N + i];
    }
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
        parameter[p] = place.owns(out, p) ? parameter_of(a, place.first + out.row(p)) : 0.0f;
    __syncthreads();
    const int longest = lengths[0];
#pragma unroll 1
    for (int t = 0; t < longest; ++t) {
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            if (t > 0) memory.receive(group, t);
            float sums[SLOTS][PASSES];
            multiply(group, out, memory, t % 2, sums);
#pragma unroll
            for (int slot = Memory::first(group); slot < Memory::end(group); ++slot) {
                if (t >= lengths[slot]) continue;
                const bool is_next = t + 1 < lengths[slot];
                const size_t next = is_next ? begin_of(a, t, place.b0 + slot, N, here[slot], 1) : 0;
#pragma unroll
                for (int p = 0; p < PASSES; ++p) {
                    if (!place.owns(out, p)) continue;
                    const int i = place.first + out.row(p);
                    const float value = sums[slot][p] + wide(x[slot][p]), h = phi(value, 0.0f, i, parameter[p], a.slope);
                    if (is_next) x[slot][p] = a.x[next + i];
                    memory.shares[slot * SHARE + out.row(p)] = h;
                    if (KEEP) store(a.saved + here[slot] + i, value);
                    store(a.states + here[slot] + i, h);
                }
                here[slot] = next;
            }
            if (t + 1 < longest) memory.send(group, t, place.rank);
        }
    }
}

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) backward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    const Place place;
    Out out;
    out.load(a.first + place.first, place.rows(), 1, N, memory.weights);
    memory.begin();
    Row saved[SLOTS][PASSES], grad[SLOTS][PASSES];  // of the next step, read a step before it
    float parameter[PASSES];
    int lengths[SLOTS];
    size_t here[SLOTS];  // where a slot's row of this step begins
    const auto read = [&](size_t at, int slot, int p) {
        const int i = place.first + out.row(p);
        saved[slot][p] = a.saved_rows[at + i];
        grad[slot][p] = LAST ? Row() : a.x[at + i];
    };
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
        const int length = lengths[slot] = place.length(a, slot), b = place.b0 + slot;
        here[slot] = length > 0 ? begin_of(a, length - 1, b, N) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            saved[slot][p] = grad[slot][p] = Row();
            if (length == 0 || !place.owns(out, p)) continue;
            read(here[slot], slot, p);
            if (LAST) grad[slot][p] = a.x[(size_t)b * N + place.first + out.row(p)];
        }
    }
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
        parameter[p] = place.owns(out, p) ? parameter_of(a, place.first + out.row(p)) : 0.0f;
    const int longest = lengths[0];
#pragma unroll 1
    for (int step = 0; step < longest; ++step) {
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            if (step > 0) memory.receive(group, step);
            float sums[SLOTS][PASSES];
            multiply(group, out, memory, step % 2, sums);  // of zeros in the first step
#pragma unroll
            for (int slot = Memory::first(group); slot < Memory::end(group); ++slot) {
                if (step >= lengths[slot]) continue;
                const int t = lengths[slot] - 1 - step;
                const size_t next = t > 0 ? begin_of(a, t, place.b0 + slot, N, here[slot], -1) : 0;
#pragma unroll
                for (int p = 0; p < PASSES; ++p) {
                    if (!place.owns(out, p)) continue;
                    const int i = place.first + out.row(p), own = slot * SHARE + out.row(p);
                    const float carry = (step > 0 ? sums[slot][p] : 0.0f) + wide(grad[slot][p]);
                    float grad_p;
                    float d = phi_backward(carry, 0.0f, wide(saved[slot][p]), 0.0f, i, parameter[p], a.slope, grad_p);
                    if (t > 0) read(next, slot, p);
                    if (UNIT) memory.sums[own] += grad_p;
                    if (CLIP) d = d > a.clip ? a.clip : d < -a.clip ? -a.clip : d;
                    memory.shares[own] = d;
                    a.delta[here[slot] + i] = d;
                }
                here[slot] = next;
            }
            memory.send(group, step, place.rank);
        }
    }
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
        memory.receive(group, longest);
#pragma unroll 1
        for (int slot = Memory::first(group); slot < Memory::end(group); ++slot) {
            const int length = place.length(a, slot);
            if (length == 0) continue;
            float sums[PASSES];
            out.multiply(memory.state(length % 2, slot), sums);
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                if (!place.owns(out, p)) continue;
                const size_t at = (size_t)(place.b0 + slot) * N + place.first + out.row(p);
                a.grad_h0[at] = sums[p];
                if (UNIT) a.grad_parameter[at] = memory.sums[slot * SHARE + out.row(p)];
            }
        }
    }
}
