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
