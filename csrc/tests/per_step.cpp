// Kernels with a transition of each step's own, and online learning: forward against plain loops in double precision, all
// gradients against central differences of the same loops; the same bits on any number of threads.
#include "check.hpp"

#include <array>
#include <cstring>
#include <functional>

#include "delta_call.hpp"
#include "online.hpp"
#include "reflections_call.hpp"

namespace orthornn {
namespace {

double inner(const Numbers& a, const Numbers& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// d loss / d x at up to eight places, against `found` there.
template <class T>
void slopes(const char* what, const std::string& where, Numbers& x, const Array<T>& found,
            const std::function<double()>& loss, double operations) {
    const std::size_t apart = 1 + x.size() / 8;
    Numbers expected, there;
    double scale = 1;
    for (std::size_t i = 0; i < x.size(); i += apart) {
        const double at = x[i], h = 1e-5;
        x[i] = at + h;
        const double above = loss();
        x[i] = at - h;
        expected.push_back((above - loss()) / (2 * h));
        x[i] = at;
        there.push_back(static_cast<double>(found.data[i]));
        scale = std::fmax(scale, std::fabs(expected.back()));
    }
    ++checks;
    const double bound = (8 * std::numeric_limits<T>::epsilon() * operations + 1e-7) * scale * 10;
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (!(std::fabs(there[i] - expected[i]) <= bound)) {
            ++failures;
            std::printf("FAILED %s: %s is %g, expected %g, allowed %g\n", where.c_str(), what, there[i], expected[i], bound);
            return;
        }
}

struct Steps {
    i64 T, B, R = 0;
    std::vector<i64> sizes, lengths;
    std::vector<unsigned char> resets;

    Steps(i64 steps, i64 batch, bool ragged, bool restarts, std::mt19937& random)
        : T(steps), B(batch), lengths(static_cast<std::size_t>(batch), steps) {
        for (i64 b = 1; ragged && b < B; ++b)
            lengths[b] = std::max<i64>(1, lengths[b - 1] - static_cast<i64>(random() % 3));
        for (i64 t = 0; t < T; ++t) {
            i64 count = 0;
            for (i64 b = 0; b < B; ++b) count += lengths[b] > t;
            sizes.push_back(count);
            R += count;
        }
        for (i64 r = 0; restarts && r < R; ++r) resets.push_back(random() % 3 == 0);
    }
    Rows rows(i64 N, bool ragged) const {
        return {T, B, N, R, ragged ? sizes.data() : nullptr, ragged ? lengths.data() : nullptr,
                resets.empty() ? nullptr : resets.data()};
    }
    bool reset(i64 row) const { return !resets.empty() && resets[static_cast<std::size_t>(row)]; }
};

Numbers between(std::mt19937& random, i64 count, double low, double high) {
    std::uniform_real_distribution<double> draw(low, high);
    Numbers x(static_cast<std::size_t>(count));
    for (double& v : x) v = static_cast<float>(draw(random));
    return x;
}

struct ReflectionSize {
    i64 T, B, N, M, heads, symbols;  // symbols: 0 for a row for each step
    bool ragged, resets, gate, turn;
};

template <class T>
std::vector<T> check_reflections(Isa isa, const ReflectionSize& z, int threads) {
    std::mt19937 random(static_cast<unsigned>(11 + z.N + 7 * z.T));
    const Steps steps(z.T, z.B, z.ragged, z.resets, random);
    const i64 N = z.N, M = z.M, H = z.heads, d = N / H, half = N / 2, far = N - half, R = steps.R;
    const i64 S = z.symbols ? z.symbols : R;
    std::vector<i64> index;
    for (i64 r = 0; z.symbols && r < R; ++r) index.push_back(static_cast<i64>(random() % static_cast<unsigned>(S)));
    Numbers k = normal(random, S * M * N), beta = between(random, S * M * H, 0, 2), add = normal(random, S * N),
            gate = between(random, z.gate ? S * H : 0, 0, 1), angle = normal(random, z.turn ? S * half : 0),
            h0 = normal(random, z.B * N), restart = normal(random, z.B * N);
    const Numbers by_states = normal(random, R * N), by_last = normal(random, z.B * N);
    Numbers states(static_cast<std::size_t>(R * N)), last;
    const auto solve = [&] {
        last = h0;
        i64 row = 0;
        for (i64 t = 0; t < z.T; ++t)
            for (i64 b = 0; b < steps.sizes[t]; ++b, ++row) {
                const i64 s = z.symbols ? index[row] : row;
                Numbers h(static_cast<std::size_t>(N));
                for (i64 n = 0; n < N; ++n) h[n] = (steps.reset(row) ? restart : last)[b * N + n];
                for (i64 n = 0; z.turn && n < half; ++n) {
                    const double c = std::cos(angle[s * half + n]), w = std::sin(angle[s * half + n]), x = h[n], y = h[far + n];
                    h[n] = c * x - w * y;
                    h[far + n] = c * y + w * x;
                }
                for (i64 i = 0; i < M * H; ++i) {
                    const double* own = &k[(s * M + i / H) * N + i % H * d];
                    double* const part = &h[i % H * d];
                    double squares = 0, along = 0;
                    for (i64 n = 0; n < d; ++n) {
                        squares += own[n] * own[n];
                        along += own[n] * part[n];
                    }
                    for (i64 n = 0; n < d; ++n) part[n] -= beta[s * M * H + i] * along / squares * own[n];
                }
                for (i64 n = 0; n < N; ++n) {
                    const double g = z.gate ? gate[s * H + n / d] : 1;
                    last[b * N + n] = states[row * N + n] = std::tanh(g * h[n] + add[s * N + n]);
                }
            }
    };
    const std::function<double()> loss = [&] {
        solve();
        return inner(states, by_states) + inner(last, by_last);
    };
    solve();
    const Numbers want_states = states, want_last = last;

    Numbers turns;
    for (i64 s = 0; z.turn && s < S; ++s)
        for (int part = 0; part < 4; ++part)
            for (i64 n = 0; n < half; ++n) {
                const double exact = part < 2 ? std::cos(angle[s * half + n]) : std::sin(angle[s * half + n]);
                turns.push_back(part % 2 ? exact - static_cast<double>(static_cast<T>(exact)) : static_cast<T>(exact));
            }
    const Array<T> K(k), be(beta), ga(gate), tu(turns), ad(add), first(h0), again(restart), gs(by_states), gl(by_last);
    Array<T> out(R * N), end(z.B * N), dots(R * M * H), g_k(S * M * N), g_beta(S * M * H), g_gate(z.gate ? S * H : 0),
        g_angle(z.turn ? S * half : 0), g_add(S * N), g_h0(z.B * N), g_restart(z.B * N);
    Array<double> inverse(S * M * H);
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run run{threads, &interrupt};
    const ReflectionTables tables{M, H, S, z.symbols ? index.data() : nullptr, K.get(), be.get(), ga.get(), z.gate ? H : 0,
                                  tu.get(), z.turn ? S : 1, ad.get(), inverse.get()};
    const Phi phi{1, 0, nullptr};
    const Rows rows = steps.rows(N, z.ragged);
    const ReflectionTable& kernels = reflections_table(isa, sizeof(T));
    kernels.forward({rows, phi, tables, first.get(), again.get(), out.get(), nullptr, end.get(), dots.get(), run});
    kernels.backward({rows, phi, tables, std::numeric_limits<double>::infinity(), first.get(), again.get(), out.get(),
                      out.get(), dots.get(), gs.get(), gl.get(), g_k.get(), g_beta.get(), g_gate.get(), g_angle.get(),
                      g_add.get(), g_h0.get(), g_restart.get(), nullptr, run});
    std::vector<T> bits(out.data.get(), out.data.get() + out.size);
    bits.insert(bits.end(), g_h0.data.get(), g_h0.data.get() + g_h0.size);
    if (threads > 1) return bits;
    char where[200];
    std::snprintf(where, sizeof where, "%s float%d reflections T=%d B=%d N=%d M=%d heads=%d symbols=%d", name(isa),
                  static_cast<int>(8 * sizeof(T)), static_cast<int>(z.T), static_cast<int>(z.B), static_cast<int>(N),
                  static_cast<int>(M), static_cast<int>(H), static_cast<int>(z.symbols));
    const double operations = static_cast<double>(std::max<i64>(1, z.T) * (2 * M + 2) * N);
    close("states", where, out, want_states, operations);
    close("last", where, end, want_last, operations);
    slopes("grad_k", where, k, g_k, loss, operations);
    slopes("grad_beta", where, beta, g_beta, loss, operations);
    slopes("grad_gate", where, gate, g_gate, loss, operations);
    slopes("grad_angle", where, angle, g_angle, loss, operations);
    slopes("grad_add", where, add, g_add, loss, operations);
    slopes("grad_h0", where, h0, g_h0, loss, operations);
    slopes("grad_restart", where, restart, g_restart, loss, operations);
    return bits;
}

struct DeltaSize {
    i64 T, B, M, heads, keys, values, gates;  // gates: 0 for none
    bool ragged, resets;
};

template <class T>
std::vector<T> check_delta(Isa isa, const DeltaSize& z, int threads) {
    std::mt19937 random(static_cast<unsigned>(5 + z.keys + 3 * z.values + z.T));
    const Steps steps(z.T, z.B, z.ragged, z.resets, random);
    const i64 M = z.M, H = z.heads, K = z.keys, V = z.values, R = steps.R, size = K * V, chunk = std::max<i64>(1, 8 / M);
    Numbers q = normal(random, R * H * K), k = normal(random, R * M * H * K), v = normal(random, R * M * H * V),
            beta = between(random, R * M * H, 0, 2), gate = between(random, R * H * z.gates, 0, 1),
            start = normal(random, z.B * H * size), restart = normal(random, z.B * H * size);
    const Numbers by_out = normal(random, R * H * V), by_last = normal(random, z.B * H * size);
    Numbers out(static_cast<std::size_t>(R * H * V)), last;
    const auto solve = [&] {
        last = start;
        i64 row = 0;
        for (i64 t = 0; t < z.T; ++t)
            for (i64 b = 0; b < steps.sizes[t]; ++b, ++row)
                for (i64 h = 0; h < H; ++h) {
                    double* const state = last.data() + (b * H + h) * size;
                    for (i64 i = 0; steps.reset(row) && i < size; ++i) state[i] = restart[(b * H + h) * size + i];
                    for (i64 i = 0; z.gates && i < size; ++i)
                        state[i] *= gate[(row * H + h) * z.gates + (z.gates > 1 ? i / V : 0)];
                    for (i64 m = 0; m < M; ++m) {
                        const i64 at = (row * M + m) * H + h;
                        double squares = 0;
                        for (i64 i = 0; i < K; ++i) squares += k[at * K + i] * k[at * K + i];
                        const double s = 1 / std::sqrt(squares);
                        for (i64 j = 0; j < V; ++j) {
                            double along = 0;
                            for (i64 i = 0; i < K; ++i) along += s * k[at * K + i] * state[i * V + j];
                            for (i64 i = 0; i < K; ++i) state[i * V + j] -= beta[at] * s * k[at * K + i] * (along - v[at * V + j]);
                        }
                    }
                    for (i64 j = 0; j < V; ++j) {
                        double sum = 0;
                        for (i64 i = 0; i < K; ++i) sum += q[(row * H + h) * K + i] * state[i * V + j];
                        out[(row * H + h) * V + j] = sum;
                    }
                }
    };
    const std::function<double()> loss = [&] {
        solve();
        return inner(out, by_out) + inner(last, by_last);
    };
    solve();
    const Numbers want_out = out, want_last = last;

    const Array<T> Q(q), Ks(k), Vs(v), be(beta), ga(gate), first(start), again(restart), go(by_out), gl(by_last);
    const i64 chunks = (z.T + chunk - 1) / chunk;
    Array<T> found(R * H * V), end(z.B * H * size), marks(chunks * z.B * H * size), g_q(R * H * K), g_k(R * M * H * K),
        g_v(R * M * H * V), g_beta(R * M * H), g_gate(static_cast<i64>(gate.size())), g_start(z.B * H * size),
        g_restart(z.B * H * size);
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run run{threads, &interrupt};
    const Rows rows = steps.rows(1, z.ragged);
    const DeltaInputs in{M, H, K, V, chunk, Q.get(), Ks.get(), Vs.get(), be.get(), ga.get(), std::max<i64>(1, z.gates),
                         first.get(), again.get()};
    delta_table(isa, sizeof(T)).forward({rows, in, found.get(), end.get(), marks.get(), run});
    delta_table(isa, sizeof(T)).backward({rows, in, marks.get(), go.get(), gl.get(), g_q.get(), g_k.get(), g_v.get(), g_beta.get(),
                            g_gate.get(), g_start.get(), g_restart.get(), run});
    std::vector<T> bits(found.data.get(), found.data.get() + found.size);
    for (const Array<T>* grad : {&g_q, &g_k, &g_v, &g_beta, &g_gate, &g_start, &g_restart})
        bits.insert(bits.end(), grad->data.get(), grad->data.get() + grad->size);
    if (threads > 1) return bits;
    char where[200];
    std::snprintf(where, sizeof where, "%s float%d delta T=%d B=%d M=%d heads=%d keys=%d values=%d gates=%d", name(isa),
                  static_cast<int>(8 * sizeof(T)), static_cast<int>(z.T), static_cast<int>(z.B), static_cast<int>(M),
                  static_cast<int>(H), static_cast<int>(K), static_cast<int>(V), static_cast<int>(z.gates));
    const double operations = static_cast<double>(std::max<i64>(1, z.T) * M * (K + V));
    close("out", where, found, want_out, operations);
    close("last", where, end, want_last, operations);
    slopes("grad_q", where, q, g_q, loss, operations);
    slopes("grad_k", where, k, g_k, loss, operations);
    slopes("grad_v", where, v, g_v, loss, operations);
    slopes("grad_beta", where, beta, g_beta, loss, operations);
    slopes("grad_gate", where, gate, g_gate, loss, operations);
    slopes("grad_start", where, start, g_start, loss, operations);
    slopes("grad_restart", where, restart, g_restart, loss, operations);
    return bits;
}

template <class T>
void same_bits(const char* what, Isa isa, const std::vector<T>& one, const std::vector<T>& other) {
    ++checks;
    if (one.size() == other.size() && !std::memcmp(one.data(), other.data(), one.size() * sizeof(T))) return;
    ++failures;
    std::printf("FAILED %s %s: other bits on three threads\n", name(isa), what);
}

template <class T>
void check_type(Isa isa) {
    const ReflectionSize words[] = {
        {4, 1, 1, 1, 1, 0, false, false, false, false}, {5, 3, 7, 2, 1, 0, true, true, false, true},
        {6, 2, 18, 3, 3, 4, false, true, true, false},  {5, 4, 35, 2, 5, 3, true, true, true, true},
        {3, 2, 66, 1, 1, 0, false, true, true, true},   {0, 2, 6, 2, 1, 0, false, true, false, false},
    };
    for (const ReflectionSize& z : words) same_bits("reflections", isa, check_reflections<T>(isa, z, 1), check_reflections<T>(isa, z, 3));
    const DeltaSize pairs[] = {
        {4, 1, 1, 1, 1, 1, 0, false, false}, {9, 2, 1, 2, 5, 7, 1, false, true},  {17, 3, 2, 1, 6, 20, 6, true, true},
        {5, 2, 3, 1, 3, 70, 1, true, false}, {12, 2, 1, 1, 33, 16, 33, false, true}, {0, 2, 1, 1, 3, 4, 0, false, true},
    };
    for (const DeltaSize& z : pairs) same_bits("delta", isa, check_delta<T>(isa, z, 1), check_delta<T>(isa, z, 3));
}

}  // namespace

void check_per_step(Isa isa) {
    check_type<float>(isa);
    check_type<double>(isa);
}

// One block of steps of online learning, whose parameters stay: its predictions and its gradient are those of all steps'
// loss, by central differences.
void check_online() {
    for (const auto& size : {std::array<i64, 4>{1, 1, 1, 1}, {9, 3, 2, 2}, {6, 17, 1, 3}}) {
        const i64 T = size[0], H = size[1], I = size[2], K = size[3];  // clang 14 captures no structured bindings
        std::mt19937 random(static_cast<unsigned>(3 + H));
        const i64 units = 2 * H, count = H + 1 + units * (I + 2 + K) + K;
        Numbers parameters = normal(random, count, 0.4), x = normal(random, T * I), target = normal(random, T * K);
        Numbers blocks(static_cast<std::size_t>(4 * H)), turns(static_cast<std::size_t>(H), 1.0);
        for (i64 h = 0; h < H; ++h) blocks[h] = blocks[3 * H + h] = 1;
        turns[H - 1] = H > 1 ? 0 : 1;  // a unit alone: its angle does nothing
        Numbers out(static_cast<std::size_t>(T * K));
        const std::function<double()> loss = [&] {
            const double* const angle = parameters.data();
            const double g = angle[H], *const V = angle + H + 1, *const b = V + I * units, *const first = b + units,
                         *const Y = first + units, *const d = Y + K * units;
            Numbers z(first, first + units);
            double total = 0;
            for (i64 t = 0; t < T; ++t) {
                for (i64 h = 0; h < H; ++h) {
                    const double c = turns[h] != 0 ? std::cos(angle[h]) : 1, s = turns[h] * std::sin(angle[h]);
                    const double top = c * z[h] - s * z[H + h], low = s * z[h] + c * z[H + h];
                    z[h] = g * top + b[h];
                    z[H + h] = g * low + b[H + h];
                }
                for (i64 j = 0; j < I; ++j)
                    for (i64 i = 0; i < units; ++i) z[i] += V[j * units + i] * x[t * I + j];
                for (i64 k = 0; k < K; ++k) {
                    double y = d[k];
                    for (i64 i = 0; i < units; ++i) y += Y[k * units + i] * z[i];
                    out[t * K + k] = y;
                    total += (y - target[t * K + k]) * (y - target[t * K + k]) / 2;
                }
            }
            return total;
        };
        loss();
        const Numbers want = out;
        const i64 traces = 2 * units + (2 + I) * 2 * units;
        Array<double> own(parameters), gradient(Numbers(static_cast<std::size_t>(count))), turned(4 * H),
            state(Numbers(static_cast<std::size_t>(units + traces))), predictions(T * K);
        for (i64 i = 0; i < units; ++i) state.data[i] = parameters[H + 1 + units * (I + 1) + i];  // z_0
        for (i64 h = 0; h < H; ++h) {  // z_0 by itself: the identity
            state.data[units + 2 * units + h] = 1;
            state.data[units + 2 * units + units + H + h] = 1;
        }
        i64 counts[2] = {0, 0};
        const Array<double> xs(x), targets(target), R(blocks), pairs(turns);
        online({T, H, I, K, own.get(), gradient.get(), nullptr, nullptr, R.get(), pairs.get(), turned.get(), state.get(),
                counts, xs.get(), targets.get(), predictions.get(), nullptr, T + 1, 0.9, 0.999, 1e-8, {}});
        const std::string where = "online T=" + std::to_string(T) + " H=" + std::to_string(H);
        close("predictions", where, predictions, want, static_cast<double>(T * units));
        slopes("gradient", where, parameters, gradient, loss, static_cast<double>(T * units));
    }
    // A long block of steps that is to stop at the third question: what is behind it is not touched.
    const i64 T = 1000000;
    int asked = 0;
    Interrupt interrupt{[](void* data) { return ++*static_cast<int*>(data) == 3; }, &asked, 0};
    Array<double> parameters(Numbers(11)), gradient(Numbers(11)), turned(4), state(Numbers(18)), predictions(T);
    const Array<double> blocks(Numbers{1, 0, 0, 1}), turns(Numbers{1}), x(Numbers(static_cast<std::size_t>(T)));
    i64 counts[2] = {0, 0};
    online({T, 1, 1, 1, parameters.get(), gradient.get(), nullptr, nullptr, blocks.get(), turns.get(), turned.get(),
            state.get(), counts, x.get(), x.get(), predictions.get(), nullptr, T + 1, 0.9, 0.999, 1e-8, {1, &interrupt}});
    ++checks;
    if (!interrupt.stop || asked != 3 || std::isnan(predictions.data[0]) || !std::isnan(predictions.data[T - 1])) {
        ++failures;
        std::printf("FAILED online: not interrupted (asked %d times)\n", asked);
    }
}

}  // namespace orthornn
