// The two recurrences, their backward chains and their gradients as plain loops in double precision: nothing of the
// kernels is used. Formulas: src/orthornn/activations.py, src/orthornn/compact_wy.py.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace reference {

using i64 = std::int64_t;
using Numbers = std::vector<double>;

inline int parameter_size(int code, i64 n) {
    return static_cast<int>(code == 2 || code == 5 || code == 6 ? n : code == 7 ? n / 2 : 0);
}
inline bool keeps_z(int code) { return code == 5 || code == 7 || code == 8; }

inline void phi(int code, double slope, const Numbers& p, const double* z, double* h, i64 n) {
    const i64 half = n / 2, other = n - half;
    for (i64 i = 0; i < n; ++i) {
        const double x = z[i];
        switch (code) {
            case 1: h[i] = std::tanh(x); break;
            case 2: h[i] = p[i] == 0 ? x : std::tanh(p[i] * x) / p[i]; break;
            case 3: h[i] = x > 0 ? x : 0; break;
            case 4: h[i] = x > 0 ? x : slope * x; break;
            case 5: h[i] = x > 0 ? x : p[i] * x; break;
            case 6: h[i] = x == 0 || std::fabs(x) + p[i] <= 0 ? 0 : std::copysign(std::fabs(x) + p[i], x); break;
            default: h[i] = x;
        }
    }
    for (i64 i = 0; i < half && code >= 7; ++i) {
        const double a = z[i], b = z[other + i], r = std::hypot(a, b);
        if (code == 7) {
            const double scale = r > 0 && r + p[i] > 0 ? (r + p[i]) / r : 0;
            h[i] = scale * a;
            h[other + i] = scale * b;
        } else {
            h[i] = std::fmax(a, b);
            h[other + i] = std::fmin(a, b);
        }
    }
}

// g becomes dL/dz; dL/dparameter is added to dp. z is the pre-activation.
inline void phi_backward(int code, double slope, const Numbers& p, const double* z, double* g, Numbers& dp, i64 n) {
    const i64 half = n / 2, other = n - half;
    for (i64 i = 0; i < n; ++i) {
        const double x = z[i], grad = g[i];
        if (code == 1) g[i] = grad * (1 - std::tanh(x) * std::tanh(x));
        if (code == 2 && p[i] != 0) {
            const double t = std::tanh(p[i] * x);
            g[i] = grad * (1 - t * t);
            dp[i] += grad * (x * (1 - t * t) - t / p[i]) / p[i];
        }
        if (code == 3) g[i] = x > 0 ? grad : 0;
        if (code == 4) g[i] = x > 0 ? grad : slope * grad;
        if (code == 5) {
            g[i] = x > 0 ? grad : p[i] * grad;
            dp[i] += x > 0 ? 0 : grad * x;
        }
        if (code == 6) {
            const bool on = x != 0 && std::fabs(x) + p[i] > 0;
            g[i] = on ? grad : 0;
            dp[i] += on ? std::copysign(1.0, x) * grad : 0;
        }
    }
    for (i64 i = 0; i < half && code >= 7; ++i) {
        const double a = z[i], b = z[other + i], r = std::hypot(a, b), ga = g[i], gb = g[other + i];
        if (code == 7) {
            const bool on = r > 0 && r + p[i] > 0;
            const double along = on ? (a * ga + b * gb) / r : 0;
            g[i] = on ? (1 + p[i] / r) * ga - p[i] * along * a / (r * r) : 0;
            g[other + i] = on ? (1 + p[i] / r) * gb - p[i] * along * b / (r * r) : 0;
            dp[i] += along;
        } else if (a < b) {
            g[i] = gb;
            g[other + i] = ga;
        }
    }
}

struct Problem {
    i64 T, B, N, M, R;
    std::vector<i64> steps;  // every step's rows
    int code;
    double slope, clip;
    Numbers W;  // (N, N): the whole transition
    Numbers parameter, x, h0, grad_states, grad_last;
    std::vector<unsigned char> resets;  // of every row, or empty
    Numbers restart;
};

struct Solution {
    Numbers states, z, last, delta, grad_h0, grad_restart, grad_parameter, grad_W;
};

inline Solution solve(const Problem& q) {
    const i64 N = q.N;
    Solution s;
    s.states.resize(q.R * N);
    s.z.resize(q.R * N);
    s.delta.resize(q.R * N);
    s.last = q.h0;
    s.grad_parameter.resize(parameter_size(q.code, N));
    s.grad_W.resize(N * N);
    Numbers before(q.R * N), h = q.h0;
    i64 row = 0;
    for (i64 t = 0; t < q.T; ++t)
        for (i64 b = 0; b < q.steps[t]; ++b, ++row) {
            const Numbers& from = !q.resets.empty() && q.resets[row] ? q.restart : h;
            for (i64 i = 0; i < N; ++i) before[row * N + i] = from[b * N + i];
            for (i64 i = 0; i < N; ++i) {
                double sum = q.x[row * N + i];
                for (i64 k = 0; k < N; ++k) sum += q.W[i * N + k] * before[row * N + k];
                s.z[row * N + i] = sum;
            }
            phi(q.code, q.slope, q.parameter, &s.z[row * N], &s.states[row * N], N);
            for (i64 i = 0; i < N; ++i) h[b * N + i] = s.states[row * N + i];
        }
    s.last = h;
    s.grad_restart.resize(q.B * N);
    Numbers carry = q.grad_last.empty() ? Numbers(q.B * N) : q.grad_last;
    for (i64 t = q.T; t-- > 0;) {
        row -= q.steps[t];
        for (i64 b = 0; b < q.steps[t]; ++b) {
            const i64 r = row + b;
            double* d = &s.delta[r * N];
            for (i64 i = 0; i < N; ++i)
                d[i] = carry[b * N + i] + (q.grad_states.empty() ? 0 : q.grad_states[r * N + i]);
            phi_backward(q.code, q.slope, q.parameter, &s.z[r * N], d, s.grad_parameter, N);
            for (i64 i = 0; i < N; ++i) d[i] = std::fmin(std::fmax(d[i], -q.clip), q.clip);
            for (i64 k = 0; k < N; ++k) {
                double sum = 0;
                for (i64 i = 0; i < N; ++i) {
                    sum += q.W[i * N + k] * d[i];
                    s.grad_W[i * N + k] += d[i] * before[r * N + k];
                }
                const bool reset = !q.resets.empty() && q.resets[r];
                if (reset) s.grad_restart[b * N + k] += sum;
                carry[b * N + k] = reset ? 0 : sum;
            }
        }
    }
    s.grad_h0 = carry;
    return s;
}

// How far the pre-activations are from where phi or its derivative jumps: nearer than rounding, either side is right.
inline double to_kink(const Problem& q, const Numbers& z) {
    const i64 N = q.N, half = N / 2, other = N - half;
    double least = HUGE_VAL;
    for (i64 r = 0; r < q.R; ++r)
        for (i64 i = 0; i < N; ++i) {
            const double x = z[r * N + i];
            if (q.code >= 3 && q.code <= 5) least = std::fmin(least, std::fabs(x));
            if (q.code == 6) least = std::fmin(least, std::fabs(std::fabs(x) + q.parameter[i]));
            if (q.code < 7 || i >= half) continue;
            const double partner = z[r * N + other + i];
            least = std::fmin(least, std::fabs(q.code == 7 ? std::hypot(x, partner) + q.parameter[i] : x - partner));
        }
    return least;
}

}  // namespace reference
