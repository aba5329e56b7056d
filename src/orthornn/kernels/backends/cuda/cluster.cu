// The dense chain of sizes that one multiprocessor cannot hold, or is slower for: a cluster of BLOCKS thread blocks has W in
// its registers and shared memory, SHARE rows a block, and takes TURNS SIDE sequences through all steps, SIDE of them in one
// product. For activations on single units.
//
// Compiled at run time by NVRTC with the macros of recurrence.cuh and THREADS, LANES1, HELD1 (product.cuh).
//
// Every block has the whole state of each sequence, computes its share of the next one, and stores it to all blocks, where a
// barrier counts what has arrived. While the shares of one turn are on their way, the next turn is computed. There are two
// places for a state, one before even steps and one before odd ones. When a warp stores to the place of h_{t+1}, where h_{t-1}
// was, it has all of h_t, so that every warp of every block has sent its rows of h_t, for which it has read h_{t-1}.
#include "device.cuh"
#include "product.cuh"
#include "recurrence.cuh"

using Out = Product<SHARE, N, LANES1, HELD1>;
constexpr int PASSES = Out::PASSES;
constexpr int SPREAD = LANES1 / (4 * SIDE);             // threads that have the same sum
constexpr int OF_TURN = (BLOCKS + 1) * SIDE * SHARE;    // floats of the states of a turn: of every block, and zeros
constexpr int OF_PLACE = TURNS * OF_TURN;

// The places of one block in shared memory.
struct Memory {
    Barrier* barriers;  // [TURNS][2]
    float* states;      // [2][TURNS][BLOCKS + 1][SIDE][SHARE]: what a step reads, and what the next one will
    float4* weights;

    __device__ explicit Memory(float4* all)
        : barriers(reinterpret_cast<Barrier*>(all)),
          states(reinterpret_cast<float*>(all + TURNS)),
          weights(all + TURNS + 2 * OF_PLACE / 4) {}

    // Place of the states of a turn before step t.
    __device__ float* state(int t, int turn) const { return states + t % 2 * OF_PLACE + turn * OF_TURN; }

    // Where unit i of the first of the turn's sequences lies in it; those of the others, SHARE further each.
    __device__ static int place(int i) {
        const int block = i / SHARE;
        return (block < BLOCKS ? block : BLOCKS) * SIDE * SHARE + i % SHARE;
    }

    // That which counts the states of a turn before step t.
    __device__ Barrier* barrier(int t, int turn) const { return barriers + 2 * turn + t % 2; }

    __device__ void expect(int t, int turn) const {
        if (threadIdx.x == 0) barrier_expect(barrier(t, turn), 4 * BLOCKS * SIDE * SHARE);
    }

    // All zeros, and barriers that expect the states before steps 1 and 2.
    __device__ void begin() const {
        for (int k = threadIdx.x; k < 2 * OF_PLACE; k += THREADS) states[k] = 0.0f;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int t = 1; t <= 2; ++t) {
                if (threadIdx.x == 0) barrier_begin(barrier(t, turn));
                expect(t, turn);
            }
        cluster_meet();
    }

    // Returns when the states of a turn before step t >= 1 are there.
    __device__ void receive(int t, int turn) const {
        barrier_wait(barrier(t, turn), (t - 1) / 2 % 2);
        expect(t + 2, turn);
    }
};

// A thread's part: one row of each pass, for one sequence of each turn.
struct Part {
    Out out;
    int rank, first, rows, slot, at[Out::QUADS];

    __device__ explicit Part() : rank(cluster_rank()), first(rank * SHARE), rows(N - first < SHARE ? N - first : SHARE) {}

    __device__ void load(const float* A, int row_stride, int column_stride, float4* weights) {
        out.load(A + (size_t)first * row_stride, rows, row_stride, column_stride, weights);
        slot = out.template index<SIDE>() / 4;
#pragma unroll
        for (int q = 0; q < Out::QUADS; ++q) at[q] = Memory::place(4 * (q * LANES1 + out.lane));
    }

    __device__ int row(int p) const { return (p * Out::GROUPS + out.group) * 4 + out.template index<SIDE>() % 4; }
    __device__ int unit(int p) const { return first + row(p); }
    __device__ bool has(int p) const { return row(p) < rows; }
    __device__ bool writes() const { return out.lane % SPREAD == 0; }

    // Whether a warp has no rows: no block waits for it then.
    __device__ bool is_idle() const { return ((int)threadIdx.x / 32 * 32) / LANES1 * 4 >= SHARE; }

    __device__ int sequence(int turn) const { return (int)blockIdx.x / BLOCKS * (TURNS * SIDE) + turn * SIDE + slot; }
    __device__ int length(const Arguments& a, int turn) const {
        const int b = sequence(turn);
        return b >= a.batch ? -1 : a.lengths ? a.lengths[b] : a.steps;
    }
    // Of the longest sequence, which comes first.
    __device__ static int longest(const Arguments& a) {
        return a.lengths ? a.lengths[(int)blockIdx.x / BLOCKS * (TURNS * SIDE)] : a.steps;
    }

    __device__ void multiply(const float* state, float (&sums)[PASSES]) const {
        out.template multiply<SIDE>(
            [&](int q, int k) { return *reinterpret_cast<const float4*>(state + at[q] + k * SHARE); }, sums);
    }

    // Sends what the threads of a turn have computed, the numbers before step t, to all blocks.
    __device__ void send(const Memory& memory, int t, int turn, const float (&values)[PASSES]) const {
        // The 4 rows of one sequence lie in 4 SPREAD neighboring threads: all of these gather them.
        const int of = out.lane % (4 * SPREAD);
        const bool odd = of & SPREAD, upper = of & (2 * SPREAD);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const float other = Out::shuffle(values[p], SPREAD);
            const float x = select(odd, other, values[p]), y = select(odd, values[p], other);
            const float far_x = Out::shuffle(x, 2 * SPREAD), far_y = Out::shuffle(y, 2 * SPREAD);
            const float4 part = make_float4(select(upper, far_x, x), select(upper, far_y, y), select(upper, x, far_x),
                                            select(upper, y, far_y));
            const int quarter = p * Out::GROUPS + out.group;
            if (4 * quarter >= SHARE) continue;
            float* to = memory.state(t, turn) + (rank * SIDE + slot) * SHARE + 4 * quarter;
#pragma unroll
            for (int block = of; block < BLOCKS; block += 4 * SPREAD) store_remote(to, block, part, memory.barrier(t, turn));
        }
    }
};

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) forward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    Part part;
    part.load(a.first, N, 1, memory.weights);
    memory.begin();
    int lengths[TURNS];
    size_t here[TURNS];        // where the row of this step begins
    Row x[TURNS][PASSES];      // of the next step, read a step before it
    float parameter[PASSES];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        lengths[turn] = part.length(a, turn);
        const int b = part.sequence(turn);
        here[turn] = lengths[turn] > 0 ? begin_of(a, 0, b, N) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const bool is_there = lengths[turn] > 0 && part.has(p);
            x[turn][p] = is_there ? a.x[here[turn] + part.unit(p)] : Row();
            parameter[p] = part.has(p) ? parameter_of(a, part.unit(p)) : 0.0f;
        }
    }
    const int b0 = (int)blockIdx.x / BLOCKS * (TURNS * SIDE), longest = Part::longest(a);
    for (int k = threadIdx.x; k < TURNS * SIDE * N; k += THREADS) {
        const int sequence = k / N, i = k % N;
        if (b0 + sequence >= a.batch) continue;
        const bool starts_anew = longest > 0 && restarts(a, 0, b0 + sequence);
        memory.state(0, sequence / SIDE)[Memory::place(i) + sequence % SIDE * SHARE] =
            (starts_anew ? a.restart : a.h0)[(size_t)b0 * N + k];
    }
    __syncthreads();
    if (part.is_idle()) return;
#pragma unroll 1
    for (int t = 0; t < longest; ++t) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int b = part.sequence(turn);
            const bool is_now = t < lengths[turn], is_next = t + 1 < lengths[turn];
            const bool restarts_next = is_next && restarts(a, t + 1, b);
            if (t > 0) memory.receive(t, turn);
            float sums[PASSES], h[PASSES];
            part.multiply(memory.state(t, turn), sums);
            const size_t next = is_next ? begin_of(a, t, b, N, here[turn], 1) : 0;
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                h[p] = 0.0f;
                if (!is_now || !part.has(p)) continue;
                const int i = part.unit(p);
                const float value = sums[p] + wide(x[turn][p]);
                h[p] = phi(value, 0.0f, i, parameter[p], a.slope);
                if (is_next) x[turn][p] = a.x[next + i];
                if (KEEP && part.writes()) store(a.saved + here[turn] + i, value);
                if (part.writes()) store(a.states + here[turn] + i, h[p]);
                if (restarts_next) h[p] = a.restart[(size_t)b * N + i];
            }
            here[turn] = next;
            if (t + 1 < longest) part.send(memory, t + 1, turn, h);
        }
    }
}

extern "C" __global__ void CLUSTER_OF(BLOCKS) __launch_bounds__(THREADS, 1) backward(Arguments a) {
    SHARED_MEMORY(float4, shared);
    const Memory memory(shared);
    Part part;
    part.load(a.first, 1, N, memory.weights);
    memory.begin();
    int lengths[TURNS];
    size_t here[TURNS];
    Row saved[TURNS][PASSES], grad[TURNS][PASSES];  // of the next step, read a step before it; LAST: of the first step alone
    float parameter[PASSES], sum[TURNS][PASSES];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int length = lengths[turn] = part.length(a, turn), b = part.sequence(turn);
        here[turn] = length > 0 ? begin_of(a, length - 1, b, N) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const bool is_there = length > 0 && part.has(p);
            const int i = part.unit(p);
            saved[turn][p] = is_there ? a.saved_rows[here[turn] + i] : Row();
            grad[turn][p] = is_there ? a.x[(LAST ? (size_t)b * N : here[turn]) + i] : Row();
            parameter[p] = part.has(p) ? parameter_of(a, i) : 0.0f;
            sum[turn][p] = 0.0f;
        }
    }
    const int longest = Part::longest(a);
    if (part.is_idle()) return;
#pragma unroll 1
    for (int step = 0; step <= longest; ++step) {  // counted from the last step of each sequence
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int length = lengths[turn], b = part.sequence(turn);
            const bool is_cut = step > 0 && step <= length && restarts(a, length - step, b);
            if (step > 0) memory.receive(step, turn);
            float sums[PASSES], d[PASSES];
            part.multiply(memory.state(step, turn), sums);  // of zeros in the first one
            const bool is_next = step + 1 < length;
            const size_t next = is_next ? begin_of(a, length - 1 - step, b, N, here[turn], -1) : 0;
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                d[p] = 0.0f;
                if (step > length || !part.has(p)) continue;
                const int i = part.unit(p);
                if (is_cut) {
                    if (part.writes()) a.grad_restart[(size_t)b * N + i] += sums[p];
                    sums[p] = 0.0f;
                }
                if (step == length) {
                    if (part.writes()) a.grad_h0[(size_t)b * N + i] = sums[p];
                    continue;
                }
                const float carry = (step > 0 ? sums[p] : 0.0f) + wide(grad[turn][p]);
                float grad_p;
                d[p] = phi_backward(carry, 0.0f, wide(saved[turn][p]), 0.0f, i, parameter[p], a.slope, grad_p);
                if (LAST) grad[turn][p] = Row();
                if (is_next) {
                    saved[turn][p] = a.saved_rows[next + i];
                    if (!LAST) grad[turn][p] = a.x[next + i];
                }
                sum[turn][p] += grad_p;
                if (CLIP) d[p] = d[p] > a.clip ? a.clip : d[p] < -a.clip ? -a.clip : d[p];
                if (part.writes()) a.delta[here[turn] + i] = d[p];
            }
            here[turn] = next;
            if (step < longest) part.send(memory, step + 1, turn, d);
        }
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            if (UNIT && lengths[turn] > 0 && part.has(p) && part.writes())
                a.grad_parameter[(size_t)part.sequence(turn) * N + part.unit(p)] = sum[turn][p];
}
