// The chain of either recurrence, forwards and backwards, one sequence a thread block, the time loop inside.
//
// Compiled at run time by NVRTC with the macros of recurrence.cuh and these: M reflections (0: dense), THREADS, LANES1
// HELD1 LANES2 HELD2 (product.cuh), BASE. tests/support/emulation.hpp runs this same text on a CPU.
//
// Per step: dense one barrier, compact WY two (one more for activations on pairs; see the README of each recurrence).
#include "device.cuh"
#include "product.cuh"
#include "recurrence.cuh"

#if M > 0
using Into = Product<M, N, LANES1, HELD1>;   // (M,) from a state
using Out = Product<N, M, LANES2, HELD2>;    // a state from (M,)
constexpr int STATE = round_up(Into::VECTOR > N ? Into::VECTOR : N, 4), TILDE = Out::VECTOR;
#else
using Out = Product<N, N, LANES1, HELD1>;
constexpr int STATE = round_up(Out::VECTOR > N ? Out::VECTOR : N, 4), TILDE = 0;
#endif
constexpr int PASSES = Out::PASSES;

// One step's two products: sums of U (V' state), or of W state.
struct Transition {
    Out out;
#if M > 0
    Into into;
#endif

    __device__ void load(const Arguments& a, bool transposed, float4* shared) {
#if M > 0
        into.load(a.first, M, 1, M, shared);
        out.load(a.second, N, M, 1, shared + Into::IN_SHARED);
#else
        out.load(a.first, N, transposed ? 1 : N, transposed ? N : 1, shared);
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

// Rows are read AHEAD steps before they are needed, since memory takes longer than a step, and the loop over time is
// unrolled as often, so that each stays in the register into which it was read: a copy would wait for it.
constexpr int AHEAD = 2;

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
    const bool starts_anew = length > 0 && restarts(a, 0, b);
    Row x[AHEAD][PASSES];
    float parameter[PASSES], c[PASSES], s[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        parameter[p] = s[p] = 0.0f;
        c[p] = 1.0f;
        for (int k = 0; k < AHEAD; ++k) x[k][p] = Row();
        if (!out.owns(p)) continue;
        const int i = out.row(p);
        state[i] = (starts_anew ? a.restart : a.h0)[(size_t)b * N + i];
        parameter[p] = parameter_of(a, i);
        if (BASE) c[p] = a.c[i], s[p] = a.s[i];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
            if (k < length) x[k][p] = a.x[begin_of(a, k, b, N) + i];
    }
    size_t here = begin_of(a, 0, b, N), tilde_here = begin_of(a, 0, b, M);
    __syncthreads();
#pragma unroll 1
    for (int round = 0; round < length; round += AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const int t = round + k;
            if (t >= length) break;
            const float* before = state + (k % 2) * STATE;
            float* after = state + (1 - k % 2) * STATE;
            const bool is_ahead = t + AHEAD < length;
            const size_t ahead = is_ahead ? begin_of(a, t, b, N, here, AHEAD) : 0;
            const bool restarts_next = t + 1 < length && restarts(a, t + 1, b);
            float sums[PASSES];
            transition.apply(before, tilde, a.h_tilde + tilde_here, sums);
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                if (!out.owns(p)) continue;
                const int i = out.row(p);
                float value = sums[p];
                if (M > 0) value = (BASE ? c[p] * before[i] + s[p] * before[partner(i)] : before[i]) - value;
                value += wide(x[k][p]);
                if (is_ahead) x[k][p] = a.x[ahead + i];
                if (KEEP) store(a.saved + here + i, value);
                if (PAIRED) z[i] = value;
                else {
                    const float h = phi(value, 0.0f, i, parameter[p], a.slope);
                    after[i] = restarts_next ? a.restart[(size_t)b * N + i] : h;
                    store(a.states + here + i, h);
                }
            }
            if (PAIRED) {
                __syncthreads();
#pragma unroll
                for (int p = 0; p < PASSES; ++p) {
                    if (!out.owns(p)) continue;
                    const int i = out.row(p);
                    const float h = phi(z[i], z[partner(i)], i, parameter[p], a.slope);
                    after[i] = restarts_next ? a.restart[(size_t)b * N + i] : h;
                    store(a.states + here + i, h);
                }
            }
            if (t + 1 < length) {
                here = begin_of(a, t, b, N, here, 1);
                if (M > 0) tilde_here = begin_of(a, t, b, M, tilde_here, 1);
            }
            __syncthreads();
        }
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
    Row grad[AHEAD][PASSES], saved[AHEAD][PASSES], other[AHEAD][PASSES];
    // The rows that begin at `at`, into place k.
    const auto read = [&](size_t at, int k, int p) {
        if (!LAST) grad[k][p] = a.x[at + out.row(p)];
        saved[k][p] = a.saved_rows[at + out.row(p)];
        if (PAIRED) other[k][p] = a.saved_rows[at + partner(out.row(p))];
    };
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
        carry[p] = sum[p] = parameter[p] = s[p] = 0.0f;
        c[p] = 1.0f;
        for (int k = 0; k < AHEAD; ++k) grad[k][p] = saved[k][p] = other[k][p] = Row();
        if (!out.owns(p)) continue;
        const int i = out.row(p);
        if (LAST) carry[p] = wide(a.x[(size_t)b * N + i]);
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
            if (k < length) read(begin_of(a, length - 1 - k, b, N), k, p);
        parameter[p] = parameter_of(a, i);
        if (BASE) c[p] = a.c[i], s[p] = a.s[partner(i)];
    }
    size_t here = begin_of(a, length - 1, b, N), tilde_here = begin_of(a, length - 1, b, M);
    __syncthreads();
#pragma unroll 1
    for (int round = 0; round < length; round += AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const int t = length - 1 - round - k;
            if (t < 0) break;
            float* delta = state + (k % 2) * STATE;
            const bool is_ahead = t - AHEAD >= 0;
            const size_t ahead = is_ahead ? begin_of(a, t, b, N, here, -AHEAD) : 0;
            const bool is_cut = restarts(a, t, b);
            if (PAIRED) {
#pragma unroll
                for (int p = 0; p < PASSES; ++p)
                    if (out.owns(p)) z[out.row(p)] = carry[p] + wide(grad[k][p]);
                __syncthreads();
            }
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                if (!out.owns(p)) continue;
                const int i = out.row(p);
                float grad_p;
                float d = phi_backward(carry[p] + wide(grad[k][p]), PAIRED ? z[partner(i)] : 0.0f, wide(saved[k][p]),
                                       wide(other[k][p]), i, parameter[p], a.slope, grad_p);
                if (is_ahead) read(ahead, k, p);
                sum[p] += grad_p;
                if (CLIP) d = d > a.clip ? a.clip : d < -a.clip ? -a.clip : d;
                delta[i] = d;
                a.delta[here + i] = d;
            }
            __syncthreads();
            float sums[PASSES];
            transition.apply(delta, tilde, a.C_tilde + tilde_here, sums);
            if (t > 0) {
                here = begin_of(a, t, b, N, here, -1);
                if (M > 0) tilde_here = begin_of(a, t, b, M, tilde_here, -1);
            }
#pragma unroll
            for (int p = 0; p < PASSES; ++p) {
                if (!out.owns(p)) continue;
                const int i = out.row(p);
                carry[p] = sums[p];
                if (M > 0) carry[p] = (BASE ? c[p] * delta[i] + s[p] * delta[partner(i)] : delta[i]) - sums[p];
                if (is_cut) {
                    a.grad_restart[(size_t)b * N + i] += carry[p];
                    carry[p] = 0.0f;
                }
            }
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
