#include "online.hpp"

#include <cmath>

#include "parallel.hpp"

// Before a loop none of whose rounds reads what another writes, though the compiler cannot know it of these pointers.
#if defined(__clang__)
#define ORTHORNN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ORTHORNN_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace orthornn {
namespace {

struct Work {
    const Online& call;
    const i64 H, I, K, units, count;
    double *angles, *gain, *V, *b, *first, *Y, *d;
    double *z, *by_angle, *by_gain, *by_columns;  // the last: of z_0, b, V's columns
    double* grad_z;

    Work(const Online& c, double* scratch)
        : call(c), H(c.H), I(c.I), K(c.K), units(2 * c.H), count(c.H + 1 + units * (c.I + 2 + c.K) + c.K),
          angles(c.parameters), gain(angles + H), V(gain + 1), b(V + I * units), first(b + units), Y(first + units),
          d(Y + K * units), z(c.state), by_angle(z + units), by_gain(by_angle + units), by_columns(by_gain + units),
          grad_z(scratch) {}

    void turn() const {
        for (i64 k = 0; k < H; ++k) {
            const double c = std::cos(angles[k]), s = call.turns[k] * std::sin(angles[k]);
            const double c_or_one = call.turns[k] != 0 ? c : 1;
            for (i64 column = 0; column < 2; ++column) {
                const double top = call.blocks[column * H + k], low = call.blocks[(2 + column) * H + k];
                call.turned[column * H + k] = c_or_one * top - s * low;
                call.turned[(2 + column) * H + k] = s * top + c_or_one * low;
            }
        }
    }

    // p = A p + amount, for a column (2, H) of a trace.
    void carry(double* p, double top_amount, double low_amount) const {
        const double g = *gain;
        const double* const r = call.turned;
        double *const top = p, *const low = p + H;
        ORTHORNN_INDEPENDENT
        for (i64 k = 0; k < H; ++k) {
            const double a = g * (r[k] * top[k] + r[H + k] * low[k]) + top_amount;
            low[k] = g * (r[2 * H + k] * top[k] + r[3 * H + k] * low[k]) + low_amount;
            top[k] = a;
        }
    }

    void advance(const double* x) const {
        const double g = *gain;
        const double* const r = call.turned;
        carry(by_angle, 0, 0);
        carry(by_gain, 0, 0);
        carry(by_columns, 0, 0);
        carry(by_columns + units, 0, 0);
        for (i64 j = 0; j < I + 1; ++j) {
            const double amount = j ? x[j - 1] : 1;
            double* const columns = by_columns + 2 * units * (j + 1);
            carry(columns, amount, 0);
            carry(columns + units, 0, amount);
        }
        ORTHORNN_INDEPENDENT
        for (i64 k = 0; k < H; ++k) {
            const double top = r[k] * z[k] + r[H + k] * z[H + k], low = r[2 * H + k] * z[k] + r[3 * H + k] * z[H + k];
            by_gain[k] += top;
            by_gain[H + k] += low;
            by_angle[k] -= call.turns[k] * g * low;
            by_angle[H + k] += call.turns[k] * g * top;
            z[k] = g * top + b[k];
            z[H + k] = g * low + b[H + k];
        }
        for (i64 j = 0; j < I; ++j)
            for (i64 i = 0; i < units; ++i) z[i] += V[j * units + i] * x[j];
    }

    static double dot(const double* u, const double* v, i64 n) {
        double sums[8] = {};
        i64 i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; ++j) sums[j] += u[i + j] * v[i + j];
        for (; i < n; ++i) sums[0] += u[i] * v[i];
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }

    double predict(i64 k) const { return dot(Y + k * units, z, units) + d[k]; }

    // Adds the gradient of a loss with this derivative by y.
    void learn(const double* error) const {
        double* const g = call.gradient;
        double *const g_V = g + H + 1, *const g_b = g_V + I * units, *const g_first = g_b + units,
               *const g_Y = g_first + units, *const g_d = g_Y + K * units;
        for (i64 i = 0; i < units; ++i) grad_z[i] = 0;
        for (i64 k = 0; k < K; ++k) {
            for (i64 i = 0; i < units; ++i) {
                grad_z[i] += error[k] * Y[k * units + i];
                g_Y[k * units + i] += error[k] * z[i];
            }
            g_d[k] += error[k];
        }
        for (i64 k = 0; k < H; ++k) g[k] += grad_z[k] * by_angle[k] + grad_z[H + k] * by_angle[H + k];
        g[H] += dot(grad_z, by_gain, units);
        for (i64 j = 0; j < I + 2; ++j) {
            double* const to = j == 0 ? g_first : j == 1 ? g_b : g_V + (j - 2) * units;
            for (i64 column = 0; column < 2; ++column) {
                const double* const p = by_columns + (2 * j + column) * units;
                double* const sum = to + column * H;
                for (i64 k = 0; k < H; ++k) sum[k] += grad_z[k] * p[k] + grad_z[H + k] * p[H + k];
            }
        }
        if (++call.counts[0] >= call.every && call.rates) update();
    }

    void update() const {
        double *const p = call.parameters, *const g = call.gradient;
        const double* const rate = call.rates;
        const double scale = 1 / static_cast<double>(call.counts[0]);
        const double n = static_cast<double>(++call.counts[1]);
        call.counts[0] = 0;
        if (call.moments) {
            double *const m = call.moments, *const v = m + count;
            const double decay = call.first_decay, square_decay = call.second_decay;
            const double m_scale = 1 / (1 - std::pow(decay, n)), v_scale = 1 / (1 - std::pow(square_decay, n));
            ORTHORNN_INDEPENDENT
            for (i64 i = 0; i < count; ++i) {
                const double mean = scale * g[i];
                m[i] = decay * m[i] + (1 - decay) * mean;
                v[i] = square_decay * v[i] + (1 - square_decay) * mean * mean;
                p[i] -= rate[i] * m_scale * m[i] / (std::sqrt(v_scale * v[i]) + call.epsilon);
            }
        } else {
            for (i64 i = 0; i < count; ++i) p[i] -= rate[i] * scale * g[i];
        }
        for (i64 i = 0; i < count; ++i) g[i] = 0;
        turn();
    }
};

}  // namespace

void online(const Online& call) {
    double* const scratch = static_cast<double*>(
        allocate(sizeof(double) * static_cast<std::size_t>(2 * call.H + call.K)));
    struct Free {
        void* memory;
        ~Free() { release(memory); }
    } const free{scratch};
    const Work work(call, scratch);
    double* const error = scratch + 2 * call.H;
    const FlushDenormals flush;
    work.turn();
    if (call.T == 0 && call.grad_out) work.learn(call.grad_out);
    const i64 between = 1 + 1000000 / (work.units * (call.I + call.K + 4));  // steps between polls
    for (i64 t = 0; t < call.T; ++t) {
        if (t % between == between - 1 && should_stop(call.run.interrupt)) return;
        work.advance(call.x + t * call.I);
        for (i64 k = 0; k < call.K; ++k) {
            const double y = work.predict(k);
            call.out[t * call.K + k] = y;
            if (call.target) error[k] = y - call.target[t * call.K + k];
        }
        if (call.target) work.learn(error);
    }
}

}  // namespace orthornn
