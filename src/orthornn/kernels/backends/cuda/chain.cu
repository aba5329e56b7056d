// The chain of either recurrence, forwards and backwards, one sequence a thread block, the time loop inside.
//
// Compiled at run time by NVRTC with these macros: N units, M reflections (0: dense), THREADS, LANES1 HELD1 LANES2 HELD2
// (below), CODE of the activation (orthornn/activations.py), UNIT and PAIR (what its parameter belongs to), KEEP, BASE,
// LAST, CLIP, HALVED (rows x, states, what is saved and their gradients are stored in bfloat16; all else, the state that
// goes from step to step too, is float32). No header is included: tests/support/emulation.hpp runs this same text on a CPU.
//
// The weights stay on the chip. A matrix A (ROWS, COLUMNS) is dealt out in tiles of 4 rows by 4 columns: LANES
// neighboring threads share 4 rows, thread `lane` of them has columns 4 (q LANES + lane) ... + 3 for q < QUADS. Of its
// QUADS tiles a thread holds HELD in registers and reads the others from shared memory, where its 16 bytes lie beside
// its neighbor's. The vector is read from shared memory, LANES * 16 bytes in a row, the same for every group.
//
// Per step: dense one barrier, compact WY two (one more for activations on pairs; see the README of each recurrence).

#if HALVED
using Row = unsigned short;  // the upper half of a float32

__device__ inline float wide(Row value) { return __uint_as_float((unsigned)value << 16); }

// To the nearest, ties to even; a NaN stays one.
__device__ inline void store(Row* at, float value) {
    const unsigned bits = __float_as_uint(value);
    *at = value != value ? (Row)0x7fc0 : (Row)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
#else
using Row = float;

__device__ inline float wide(Row value) { return value; }
#endif
__device__ inline void store(float* at, float value) { *at = value; }

struct Arguments {
    const Row* x;            // forward: projected rows (R, N); backward: dL/dh (R, N), or with LAST (B, N)
    const float* h0;         // forward (B, N)
    const Row* saved_rows;    // backward: states or pre-activations (R, N)
    const float* first;      // dense: W (N, N); else V: h~ or C~ = V' state (N, M)
    const float* second;     // else U: what is taken off is U h~ (forward) or B'U C~ (backward) (N, M)
    const float* c;          // base, (N,)
    const float* s;
    const float* parameter;
    Row* states;             // forward (R, N)
    Row* saved;               // forward, KEEP: pre-activations (R, N)
    Row* h_tilde;            // forward (R, M)
    float* delta;            // backward (R, N)
    float* C_tilde;          // backward (R, M)
    float* grad_h0;            // backward (B, N)
    float* grad_parameter;     // backward: (B, N) or (B, N / 2)
    const long long* offsets;  // first row of each step, or null where every step has `batch` rows
    const int* lengths;      // steps of each sequence, or null
    int steps;
    int batch;
    float slope;
    float clip;
};

constexpr int HALF = N / 2;

__device__ constexpr int round_up(int number, int to) { return (number + to - 1) / to * to; }

// The partner of unit i in the other half; an odd middle is its own.
__device__ inline int partner(int i) { return i < HALF ? i + (N - HALF) : i >= N - HALF ? i - (N - HALF) : i; }

template <int ROWS, int COLUMNS, int LANES, int WANTED>
struct Product {
    static constexpr int GROUPS = THREADS / LANES;
    static constexpr int PASSES = (ROWS + 4 * GROUPS - 1) / (4 * GROUPS);
    static constexpr int QUADS = (COLUMNS + 4 * LANES - 1) / (4 * LANES);
    static constexpr int HELD = WANTED < QUADS ? WANTED : QUADS;
    static constexpr int VECTOR = 4 * LANES * QUADS;                           // floats of the padded vector
    static constexpr int IN_SHARED = PASSES * (QUADS - HELD) * 4 * THREADS;    // float4

    float4 held[PASSES][HELD > 0 ? HELD : 1][4];
    const float4* rest;
    int lane, group;

    __device__ void load(const float* A, int row_stride, int column_stride, float4* shared) {
        lane = threadIdx.x % LANES;
        group = threadIdx.x / LANES;
        rest = shared + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
#pragma unroll
            for (int q = 0; q < QUADS; ++q)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const int i = (p * GROUPS + group) * 4 + r, j = 4 * (q * LANES + lane);
                    float w[4];
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        w[k] = i < ROWS && j + k < COLUMNS ? A[i * row_stride + (j + k) * column_stride] : 0.0f;
                    const float4 tile = make_float4(w[0], w[1], w[2], w[3]);
                    if (q < HELD) held[p][q < HELD ? q : 0][r] = tile;
                    else shared[((p * (QUADS - HELD) + q - HELD) * 4 + r) * THREADS + threadIdx.x] = tile;
                }
    }

    // A v: the sums of row(p) are in sums[p] of the threads for which owns() holds. Every thread of the block calls it.
    __device__ void multiply(const float* v, float (&sums)[PASSES]) const {
        const float4* vector = reinterpret_cast<const float4*>(v) + lane;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const float4 h = vector[q * LANES];
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const float4 w = q < HELD ? held[p][q < HELD ? q : 0][r]
                                              : rest[((p * (QUADS - HELD) + q - HELD) * 4 + r) * THREADS];
                    s[r] = fmaf(w.x, h.x, fmaf(w.y, h.y, fmaf(w.z, h.z, fmaf(w.w, h.w, s[r]))));
                }
            }
            // Four sums over LANES threads: the first two exchanges halve how many a thread is still responsible for.
            const bool upper = lane & (LANES / 2), odd = lane & (LANES / 4);
            const float a = (upper ? s[2] : s[0]) + shuffle(upper ? s[0] : s[2], LANES / 2);
            const float b = (upper ? s[3] : s[1]) + shuffle(upper ? s[1] : s[3], LANES / 2);
            float sum = (odd ? b : a) + shuffle(odd ? a : b, LANES / 4);
#pragma unroll
            for (int step = LANES / 8; step > 0; step /= 2) sum += shuffle(sum, step);
            sums[p] = sum;
        }
    }

    __device__ static float shuffle(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

    __device__ int row(int p) const {
        return (p * GROUPS + group) * 4 + ((lane & (LANES / 2)) ? 2 : 0) + ((lane & (LANES / 4)) ? 1 : 0);
    }

    __device__ bool owns(int p) const { return (lane & (LANES / 4 - 1)) == 0 && row(p) < ROWS; }
};

// phi of unit i with pre-activation z; other: that of its partner.
__device__ inline float phi(float z, float other, int i, float p, float slope) {
    if (CODE == 1) return tanhf(z);
    if (CODE == 2) return p == 0.0f ? z : tanhf(p * z) / p;
    if (CODE == 3) return z < 0.0f ? 0.0f : z;
    if (CODE == 4) return z > 0.0f ? z : slope * z;
    if (CODE == 5) return z > 0.0f ? z : p * z;
    if (CODE == 6) {
        const float shrunk = fmaxf(fabsf(z) + p, 0.0f);
        return z > 0.0f ? shrunk : z < 0.0f ? -shrunk : z;
    }
    if (CODE == 7) {
        const float r = hypotf(z, other);
        return r > 0.0f && r + p > 0.0f ? (r + p) / r * z : r == r ? 0.0f : r;
    }
    if (CODE == 8) {
        if (i < HALF) return z >= other ? z : other;
        return i >= N - HALF ? (other >= z ? z : other) : z;
    }
    return z;
}

// dL/dz of unit i from dL/dh (g) and what was saved, and its share of dL/dp; other_*: its partner's.
__device__ inline float phi_backward(float g, float other_g, float saved, float other_saved, int i, float p, float slope,
                                     float& grad_p) {
    grad_p = 0.0f;
    if (CODE == 1) return g * (1.0f - saved * saved);
    if (CODE == 2) {
        const float t = p * saved, square = t * t, derivative = 1.0f - square;
        if (fabsf(t) < 0.25f) {  // where the difference below cancels
            const float tail = 2.0f / 63 + square * (2.0f / 99 + square * (2.0f / 143));
            const float series = 2.0f / 3 + square * (2.0f / 15 + square * (2.0f / 35 + square * tail));
            grad_p = -g * t * saved * saved * series;
        } else {
            const float z = fabsf(t) >= 1.0f ? 0.0f : atanhf(t) / p;
            grad_p = g * ((z * derivative - saved) / p);
        }
        return g * derivative;
    }
    if (CODE == 3) return saved <= 0.0f ? 0.0f : g;
    if (CODE == 4) return saved > 0.0f ? g : slope * g;
    if (CODE == 5) {
        grad_p = saved > 0.0f ? 0.0f : g * saved;
        return saved > 0.0f ? g : p * g;
    }
    if (CODE == 6) {
        grad_p = saved > 0.0f ? g : saved < 0.0f ? -g : 0.0f;
        return saved != 0.0f ? g : 0.0f;
    }
    if (CODE == 7) {
        const float r = hypotf(saved, other_saved);
        if (!(r > 0.0f && r + p > 0.0f)) return grad_p = r == r ? 0.0f : r;
        const float along = saved / r * g + other_saved / r * other_g;
        grad_p = along;
        return (r + p) / r * g - p * along / r * (saved / r);
    }
    if (CODE == 8) {
        const bool keep = i < HALF ? saved >= other_saved : i >= N - HALF ? other_saved >= saved : true;
        return keep ? g : other_g;
    }
    return g;
}

constexpr bool PAIRED = CODE == 7 || CODE == 8;
#if M > 0
using Into = Product<M, N, LANES1, HELD1>;   // (M,) from a state
using Out = Product<N, M, LANES2, HELD2>;    // a state from (M,)
constexpr int STATE = round_up(Into::VECTOR > N ? Into::VECTOR : N, 4), TILDE = Out::VECTOR;
#else
using Out = Product<N, N, LANES1, HELD1>;
constexpr int STATE = round_up(Out::VECTOR > N ? Out::VECTOR : N, 4), TILDE = 0;
#endif
constexpr int PASSES = Out::PASSES;

__device__ inline size_t row_of(const Arguments& a, int t, int b) {
    return (a.offsets ? a.offsets[t] : (long long)t * a.batch) + b;
}

// One step's two products: sums of U (V' state), or of W state.
struct Transition {
    Out out;
#if M > 0
    Into into;
#endif

    __device__ void load(const Arguments& a, bool transposed, float4* shared) {
#if M > 0
        into.load(a.first, 1, M, shared);
        out.load(a.second, M, 1, shared + Into::IN_SHARED);
#else
        out.load(a.first, transposed ? 1 : N, transposed ? N : 1, shared);
#endif
    }

    template <typename Stored>
    __device__ void apply(const float* state, float* tilde, Stored* saved_tilde, float (&sums)[PASSES]) const {
#if M > 0
        float q[Into::PASSES];
        into.multiply(state, q);
#pragma unroll
        for (int p = 0; p < Into::PASSES; ++p)
            if (into.owns(p)) {
                tilde[into.row(p)] = q[p];
                store(saved_tilde + into.row(p), q[p]);
            }
        __syncthreads();
        out.multiply(tilde, sums);
#else
        out.multiply(state, sums);
#endif
    }
};

__device__ inline float parameter_of(const Arguments& a, int i) {
    if (UNIT) return a.parameter[i];
    if (PAIR) return a.parameter[i < HALF ? i : i - HALF];
    return 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) forward(Arguments a) {
    SHARED_MEMORY(float4, memory);
    float* state = reinterpret_cast<float*>(memory);  // two of STATE: h_{t-1} and h_t
    float* z = state + 2 * STATE;                     // pre-activations, for pairs
    float* tilde = z + STATE;
    Transition transition;
    transition.load(a, false, memory + (3 * STATE + TILDE) / 4);
    const Out& out = transition.out;
    const int b = blockIdx.x, length = a.lengths ? a.lengths[b] : a.steps;
    for (int k = threadIdx.x; k < 3 * STATE + TILDE; k += THREADS) state[k] = 0.0f;
    __syncthreads();
    float x[2][PASSES], parameter[PASSES], c[PASSES], s[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        x[0][p] = x[1][p] = parameter[p] = s[p] = 0.0f;
        c[p] = 1.0f;
        if (!out.owns(p)) continue;
        const int i = out.row(p);
        state[i] = a.h0[(size_t)b * N + i];
        parameter[p] = parameter_of(a, i);
        if (BASE) c[p] = a.c[i], s[p] = a.s[i];
        for (int t = 0; t < 2; ++t)
            if (t < length) x[t][p] = wide(a.x[row_of(a, t, b) * N + i]);
    }
    __syncthreads();
    for (int t = 0; t < length; ++t) {
        const float* before = state + (t % 2) * STATE;
        float* after = state + (1 - t % 2) * STATE;
        const size_t row = row_of(a, t, b);
        float ahead[PASSES];  // x two steps ahead: a row from device memory takes longer than a step
        const size_t row_ahead = t + 2 < length ? row_of(a, t + 2, b) : 0;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            ahead[p] = t + 2 < length && out.owns(p) ? wide(a.x[row_ahead * N + out.row(p)]) : 0.0f;
        float sums[PASSES];
        transition.apply(before, tilde, a.h_tilde + row * M, sums);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if (!out.owns(p)) continue;
            const int i = out.row(p);
            float value = M > 0 ? (BASE ? c[p] * before[i] + s[p] * before[partner(i)] : before[i]) - sums[p] : sums[p];
            value += x[0][p];
            if (KEEP) store(a.saved + row * N + i, value);
            if (PAIRED) z[i] = value;
            else {
                const float h = phi(value, 0.0f, i, parameter[p], a.slope);
                after[i] = h;
                store(a.states + row * N + i, h);
            }
        }
        if (PAIRED) {
            __syncthreads();
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                if (!out.owns(p)) continue;
                const int i = out.row(p);
                const float h = phi(z[i], z[partner(i)], i, parameter[p], a.slope);
                after[i] = h;
                store(a.states + row * N + i, h);
            }
        }
#pragma unroll
        for (int p = 0; p < PASSES; ++p) x[0][p] = x[1][p], x[1][p] = ahead[p];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward(Arguments a) {
    SHARED_MEMORY(float4, memory);
    float* state = reinterpret_cast<float*>(memory);  // two of STATE: delta_{t+1} and delta_t
    float* z = state + 2 * STATE;                     // dL/dh_t, for pairs
    float* tilde = z + STATE;
    Transition transition;
    transition.load(a, true, memory + (3 * STATE + TILDE) / 4);
    const Out& out = transition.out;
    const int b = blockIdx.x, length = a.lengths ? a.lengths[b] : a.steps;
    for (int k = threadIdx.x; k < 3 * STATE + TILDE; k += THREADS) state[k] = 0.0f;
    float carry[PASSES], sum[PASSES], parameter[PASSES], c[PASSES], s[PASSES];
    float grad[PASSES], saved[PASSES], other[PASSES];
    const size_t last_row = row_of(a, length - 1, b);
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        carry[p] = sum[p] = parameter[p] = s[p] = grad[p] = saved[p] = other[p] = 0.0f;
        c[p] = 1.0f;
        if (!out.owns(p)) continue;
        const int i = out.row(p);
        if (LAST) carry[p] = wide(a.x[(size_t)b * N + i]);
        else grad[p] = wide(a.x[last_row * N + i]);
        saved[p] = wide(a.saved_rows[last_row * N + i]);
        if (PAIRED) other[p] = wide(a.saved_rows[last_row * N + partner(i)]);
        parameter[p] = parameter_of(a, i);
        if (BASE) c[p] = a.c[i], s[p] = a.s[partner(i)];
    }
    __syncthreads();
    for (int t = length - 1; t >= 0; --t) {
        float* delta = state + (t % 2) * STATE;
        const size_t row = row_of(a, t, b), before = t > 0 ? row_of(a, t - 1, b) : 0;
        float next_grad[PASSES], next_saved[PASSES], next_other[PASSES];
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const bool read = t > 0 && out.owns(p);
            next_grad[p] = !LAST && read ? wide(a.x[before * N + out.row(p)]) : 0.0f;
            next_saved[p] = read ? wide(a.saved_rows[before * N + out.row(p)]) : 0.0f;
            next_other[p] = PAIRED && read ? wide(a.saved_rows[before * N + partner(out.row(p))]) : 0.0f;
        }
        if (PAIRED) {
#pragma unroll
            for (int p = 0; p < PASSES; ++p)
                if (out.owns(p)) z[out.row(p)] = carry[p] + grad[p];
            __syncthreads();
        }
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if (!out.owns(p)) continue;
            const int i = out.row(p);
            float grad_p;
            float d = phi_backward(carry[p] + grad[p], PAIRED ? z[partner(i)] : 0.0f, saved[p], other[p], i,
                                   parameter[p], a.slope, grad_p);
            sum[p] += grad_p;
            if (CLIP) d = d > a.clip ? a.clip : d < -a.clip ? -a.clip : d;
            delta[i] = d;
            a.delta[row * N + i] = d;
        }
        __syncthreads();
        float sums[PASSES];
        transition.apply(delta, tilde, a.C_tilde + row * M, sums);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if (out.owns(p)) {
                const int i = out.row(p);
                carry[p] = M > 0 ? (BASE ? c[p] * delta[i] + s[p] * delta[partner(i)] : delta[i]) - sums[p] : sums[p];
            }
            grad[p] = next_grad[p], saved[p] = next_saved[p], other[p] = next_other[p];
        }
    }
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        if (!out.owns(p)) continue;
        const int i = out.row(p);
        a.grad_h0[(size_t)b * N + i] = carry[p];
        if (UNIT) a.grad_parameter[(size_t)b * N + i] = sum[p];
        if (PAIR && i < HALF) a.grad_parameter[(size_t)b * HALF + i] = sum[p];
    }
}
