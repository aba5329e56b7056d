// What the kernels of recurrences share: their arguments, rows in 32 or 16 bits, and activations.
//
// Macros: N units, CODE of the activation (orthornn/activations.py), UNIT and PAIR (what its parameter belongs to), KEEP
// (pre-activations are written), PACKED (steps have rows of their own number), RESETS (sequences may restart), LAST (the
// gradient is that of the last states), CLIP, HALVED (rows x, states, what is saved and their gradients are stored in bfloat16; all else, the state that
// goes from step to step too, is float32).
#pragma once

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
    const Row* saved_rows;   // backward: states or pre-activations (R, N)
    const float* first;      // dense: W (N, N); else V: h~ or C~ = V' state (N, M)
    const float* second;     // else U: what is taken off is U h~ (forward) or B'U C~ (backward) (N, M)
    const float* c;          // base, (N,)
    const float* s;
    const float* parameter;
    Row* states;             // forward (R, N)
    Row* saved;              // forward, KEEP: pre-activations (R, N)
    Row* h_tilde;            // forward (R, M)
    float* delta;            // backward (R, N)
    float* C_tilde;          // backward (R, M)
    float* grad_h0;          // backward (B, N)
    float* grad_parameter;   // backward: (B, N) or (B, N / 2)
    const bool* resets;      // RESETS (R,): whether h_{t-1} is `restart` in this step
    const float* restart;    // RESETS, forward (B, N)
    float* grad_restart;     // RESETS, backward (B, N): zeros, to which is added
    const long long* offsets;  // first row of each step, or null where every step has `batch` rows
    const int* lengths;      // steps of each sequence, or null
    int steps;
    int batch;
    float slope;
    float clip;
};

constexpr int HALF = N / 2;

// The partner of unit i in the other half; an odd middle is its own.
__device__ inline int partner(int i) { return i < HALF ? i + (N - HALF) : i >= N - HALF ? i - (N - HALF) : i; }

// Where the row of step t of sequence b begins in an array (R, width), and the same for the step `by` steps later.
__device__ inline size_t begin_of(const Arguments& a, int t, int b, int width) {
    return ((size_t)(PACKED ? a.offsets[t] : (long long)t * a.batch) + b) * width;
}
__device__ inline size_t begin_of(const Arguments& a, int t, int b, int width, size_t here, int by) {
    return PACKED ? begin_of(a, t + by, b, width) : here + (long long)by * a.batch * width;
}

// Whether sequence b restarts before step t.
__device__ inline bool restarts(const Arguments& a, int t, int b) { return RESETS && a.resets[begin_of(a, t, b, 1)]; }

__device__ inline float parameter_of(const Arguments& a, int i) {
    if (UNIT) return a.parameter[i];
    if (PAIR) return a.parameter[i < HALF ? i : i - HALF];
    return 0.0f;
}

// phi of unit i with pre-activation z; other: that of its partner.
__device__ inline float phi(float z, float other, int i, float p, float slope) {
    if (CODE == 1) return tanhf(z);
    if (CODE == 2) return p == 0.0f ? z : tanhf(p * z) / p;
    if (CODE == 3) return z < 0.0f ? 0.0f : z;
    if (CODE == 4) return z > 0.0f ? z : slope * z;
    if (CODE == 5) return z > 0.0f ? z : p * z;
    if (CODE == 6) {
        const float size = fabsf(z) + p, shrunk = size < 0.0f ? 0.0f : size;  // not fmaxf, which loses NaN
        return z > 0.0f ? shrunk : z < 0.0f ? -shrunk : z;
    }
    if (CODE == 7) {
        const float r = hypotf(z, other);
        return r > 0.0f && !(r + p <= 0.0f) ? (r + p) / r * z : r == r ? 0.0f : r;
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
        if (!(r > 0.0f) || r + p <= 0.0f) return grad_p = r == r ? 0.0f : r;
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
