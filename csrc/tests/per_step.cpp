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
    bool ragged, resets;
    int gates;  // 0 for none, 1 for one a head, 2 for one a unit
    bool turn;
    int code = 1;  // of phi
};

template <class T>
std::vector<T> check_reflections(Isa isa, const ReflectionSize& z, int threads) {
    std::mt19937 random(static_cast<unsigned>(11 + z.N + 7 * z.T));
    const Steps steps(z.T, z.B, z.ragged, z.resets, random);
    const i64 N = z.N, M = z.M, H = z.heads, d = N / H, half = N / 2, far = N - half, R = steps.R;
    const i64 S = z.symbols ? z.symbols : R, G = z.gates == 2 ? N : z.gates * H;
    std::vector<i64> index;
    for (i64 r = 0; z.symbols && r < R; ++r) index.push_back(static_cast<i64>(random() % static_cast<unsigned>(S)));
    Numbers k = normal(random, S * M * N), beta = between(random, S * M * H, 0, 2), add = normal(random, S * N),
            gate = between(random, S * G, 0, 1), parameter = between(random, reference::parameter_size(z.code, N), 0.2, 0.8),
            angle = normal(random, z.turn ? S * half : 0), h0 = normal(random, z.B * N), restart = normal(random, z.B * N);
    const Numbers by_states = normal(random, R * N), by_last = normal(random, z.B * N);
    Numbers states(static_cast<std::size_t>(R * N)), last, sum(static_cast<std::size_t>(N));
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
                    const double g = z.gates == 2 ? gate[s * N + n] : z.gates ? gate[s * H + n / d] : 1;
                    sum[n] = g * h[n] + add[s * N + n];
                }
                reference::phi(z.code, 0, parameter, sum.data(), &states[row * N], N);
                for (i64 n = 0; n < N; ++n) last[b * N + n] = states[row * N + n];
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
    const Array<T> K(k), be(beta), ga(gate), tu(turns), ad(add), first(h0), again(restart), gs(by_states), gl(by_last),
        p(parameter);
    Array<T> out(R * N), saved(reference::keeps_z(z.code) ? R * N : 0), end(z.B * N), dots(R * M * H), g_k(S * M * N),
        g_beta(S * M * H), g_gate(S * G), g_angle(z.turn ? S * half : 0), g_add(S * N), g_h0(z.B * N), g_restart(z.B * N),
        g_parameter(p.size);
    Array<double> inverse(S * M * H);
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run run{threads, &interrupt};
    const ReflectionTables tables{M, H, S, z.symbols ? index.data() : nullptr, K.get(), be.get(), ga.get(), G,
                                  tu.get(), z.turn ? S : 1, ad.get(), inverse.get()};
    const Phi phi{z.code, 0, p.get()};
    const Rows rows = steps.rows(N, z.ragged);
    const ReflectionTable& kernels = reflections_table(isa, sizeof(T));
    kernels.forward({rows, phi, tables, first.get(), again.get(), out.get(), saved.get(), end.get(), dots.get(), run});
    kernels.backward({rows, phi, tables, std::numeric_limits<double>::infinity(), first.get(), again.get(), out.get(),
                      saved.size ? saved.get() : out.get(), dots.get(), gs.get(), gl.get(), g_k.get(), g_beta.get(),
                      g_gate.get(), g_angle.get(), g_add.get(), g_h0.get(), g_restart.get(), g_parameter.get(), run});
    std::vector<T> bits(out.data.get(), out.data.get() + out.size);
    bits.insert(bits.end(), g_h0.data.get(), g_h0.data.get() + g_h0.size);
    if (threads > 1) return bits;
    char where[200];
    std::snprintf(where, sizeof where, "%s float%d reflections T=%d B=%d N=%d M=%d heads=%d symbols=%d phi=%d", name(isa),
                  static_cast<int>(8 * sizeof(T)), static_cast<int>(z.T), static_cast<int>(z.B), static_cast<int>(N),
                  static_cast<int>(M), static_cast<int>(H), static_cast<int>(z.symbols), z.code);
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
    slopes("grad_parameter", where, parameter, g_parameter, loss, operations);
    return bits;
}

struct DeltaSize {
    i64 T, B, M, heads, keys, values, gates;  // gates: 0 for none
    bool ragged, resets, from_zero = false;   // from_zero: what restarts starts from null
    i64 products = 0;                         // steps between stored states by products; 0: update by update
};

template <class T>
std::vector<T> check_delta(Isa isa, const DeltaSize& z, int threads) {
    std::mt19937 random(static_cast<unsigned>(5 + z.keys + 3 * z.values + z.T));
    const Steps steps(z.T, z.B, z.ragged, z.resets, random);
    const i64 M = z.M, H = z.heads, K = z.keys, V = z.values, R = steps.R, size = K * V,
              chunk = z.products ? z.products : std::max<i64>(1, 8 / M);
    Numbers q = normal(random, R * H * K), k = normal(random, R * M * H * K), v = normal(random, R * M * H * V),
            beta = between(random, R * M * H, 0, 2), gate = between(random, R * H * z.gates, 0, 1),
            start = normal(random, z.B * H * size),
            restart = z.from_zero ? Numbers(static_cast<std::size_t>(z.B * H * size)) : normal(random, z.B * H * size);
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
                         first.get(), z.from_zero ? nullptr : again.get(), z.products > 0};
    const DeltaTable& kernels = delta_table(isa, sizeof(T));
    kernels.forward({rows, in, found.get(), end.get(), marks.get(), run});
    kernels.backward({rows, in, marks.get(), go.get(), gl.get(), g_q.get(), g_k.get(), g_v.get(), g_beta.get(), g_gate.get(),
                      g_start.get(), g_restart.get(), run});
    std::vector<T> bits(found.data.get(), found.data.get() + found.size);
    for (const Array<T>* grad : {&g_q, &g_k, &g_v, &g_beta, &g_gate, &g_start, &g_restart})
        bits.insert(bits.end(), grad->data.get(), grad->data.get() + grad->size);
    if (threads > 1) return bits;
    char where[200];
    std::snprintf(where, sizeof where, "%s float%d delta%s T=%d B=%d M=%d heads=%d keys=%d values=%d gates=%d", name(isa),
                  static_cast<int>(8 * sizeof(T)), z.products ? " by products" : "", static_cast<int>(z.T), static_cast<int>(z.B), static_cast<int>(M),
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
    std::printf("FAILED %s %s: other bits\n", name(isa), what);
}

template <class T>
void check_type(Isa isa) {
    const ReflectionSize words[] = {
        {4, 1, 1, 1, 1, 0, false, false, 0, false}, {5, 3, 7, 2, 1, 0, true, true, 0, true},
        {6, 2, 18, 3, 3, 4, false, true, 1, false}, {5, 4, 35, 2, 5, 3, true, true, 1, true},
        {3, 2, 66, 1, 1, 0, false, true, 1, true},  {0, 2, 6, 2, 1, 0, false, true, 0, false},
        {5, 2, 9, 2, 3, 0, false, true, 2, true, 2}, {4, 3, 10, 2, 2, 40, true, true, 2, true, 7},
        {45, 2, 5, 1, 1, 1, false, true, 1, false, 2},  // one row of the tables in more than 64 rows
    };
    for (const ReflectionSize& z : words)
        same_bits("reflections on three threads", isa, check_reflections<T>(isa, z, 1), check_reflections<T>(isa, z, 3));
    const DeltaSize pairs[] = {
        {4, 1, 1, 1, 1, 1, 0, false, false}, {9, 2, 1, 2, 5, 7, 1, false, true},  {17, 3, 2, 1, 6, 20, 6, true, true},
        {5, 2, 3, 1, 3, 70, 1, true, false}, {12, 2, 1, 1, 33, 16, 33, false, true}, {0, 2, 1, 1, 3, 4, 0, false, true},
        {11, 2, 1, 1, 4, 5, 0, true, true, true},
        // By products: chunks of 16 updates, cut by stored states, by the ends of episodes and of sequences.
        {40, 1, 1, 1, 5, 7, 0, false, false, false, 40}, {37, 2, 1, 2, 9, 20, 1, true, false, false, 24},
        {35, 2, 1, 1, 6, 33, 6, false, false, false, 16}, {23, 2, 3, 1, 4, 17, 1, false, false, false, 8},
        {19, 3, 2, 2, 7, 70, 7, true, true, false, 13},  {40, 2, 1, 1, 3, 5, 0, false, true, true, 32},
        {9, 1, 20, 1, 3, 4, 3, false, false, false, 4},  {0, 2, 1, 1, 3, 4, 0, false, true, false, 8},
        {18, 1, 1, 9, 2, 3, 1, false, false, false, 18},
    };
    for (const DeltaSize& z : pairs)
        same_bits("delta on three threads", isa, check_delta<T>(isa, z, 1), check_delta<T>(isa, z, 3));
}

}  // namespace

// What is not finite ends with its episode and stays in its sequence, also in the columns that only fill up a vector, and by
// products, too, where what earlier steps of its chunk read has the bits that it has without it.
template <class T>
void check_not_finite(Isa isa, bool products) {
    const i64 steps = products ? 40 : 6, again = products ? 20 : 3, bad = products ? 29 : 4, chunk = products ? 24 : 4;
    const i64 B = 2, K = 3, D = 71, R = steps * B;  // no vector divides 71
    std::vector<unsigned char> resets(static_cast<std::size_t>(R), 0);
    for (i64 b = 0; b < B; ++b) resets[again * B + b] = 1;
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run run{1, &interrupt};
    const Rows rows{steps, B, 1, R, nullptr, nullptr, resets.data()};
    // What every row reads, and its gradients: q, k, v, beta, gate.
    std::vector<std::vector<T>> reads;
    const auto gradients = [&](i64 bad_key, i64 bad_grad) {
        std::mt19937 random(5);
        Numbers key = normal(random, R * K), grad = normal(random, R * D);
        const double inf = std::numeric_limits<double>::infinity();
        if (bad_key >= 0) key[bad_key * K] = inf;
        for (i64 j = 0; bad_grad >= 0 && j < D; ++j) grad[bad_grad * D + j] = inf;
        const Array<T> q(normal(random, R * K)), k(key), v(normal(random, R * D)), beta(between(random, R, 0, 2)),
            gate(between(random, R, 0, 1)), start(normal(random, B * K * D)), by_out(grad);
        Array<T> out(R * D), last(B * K * D), marks(2 * B * K * D), g_q(R * K), g_k(R * K), g_v(R * D), g_beta(R), g_gate(R),
            g_start(B * K * D);
        const DeltaInputs in{1, 1, K, D, chunk, q.get(), k.get(), v.get(), beta.get(), gate.get(), 1, start.get(), nullptr,
                             products};
        delta_table(isa, sizeof(T)).forward({rows, in, out.get(), last.get(), marks.get(), run});
        delta_table(isa, sizeof(T)).backward({rows, in, marks.get(), by_out.get(), nullptr, g_q.get(), g_k.get(), g_v.get(),
                                              g_beta.get(), g_gate.get(), g_start.get(), nullptr, run});
        reads.assign(static_cast<std::size_t>(R), {});
        for (i64 r = 0; r < R; ++r) reads[r].assign(out.data.get() + r * D, out.data.get() + (r + 1) * D);
        std::vector<std::vector<T>> found(static_cast<std::size_t>(R));
        for (i64 r = 0; r < R; ++r)
            for (const Array<T>* g : {&g_q, &g_k, &g_v, &g_beta, &g_gate}) {
                const i64 each = g->size / R;
                found[r].insert(found[r].end(), g->data.get() + r * each, g->data.get() + (r + 1) * each);
            }
        return found;
    };
    const auto plain = gradients(-1, -1);
    const auto read = reads;
    const auto key = gradients(bad * B, -1);
    for (i64 r = 0; r < R; ++r)
        if (r % B == 1 || r / B < bad) same_bits("what steps before an infinite key read", isa, read[r], reads[r]);
    ++checks;
    if (std::isfinite(reads[bad * B][0])) {
        ++failures;
        std::printf("FAILED %s: an infinite key is read as finite\n", name(isa));
    }
    const auto grad = gradients(-1, 0);
    // Backward by products, a block of columns that is not finite is done update by update: the rest of its gradients are the
    // same to rounding only.
    const auto compare = [&](const char* what, i64 r, const std::vector<T>& other) {
        if (!products || r % B == 1) return same_bits(what, isa, plain[r], other);
        Array<T> found(static_cast<i64>(other.size()));
        for (i64 i = 0; i < found.size; ++i) found.data[i] = other[static_cast<std::size_t>(i)];
        close(what, std::string(name(isa)) + " by products", found, Numbers(plain[r].begin(), plain[r].end()),
              static_cast<double>(steps * (K + D)));
    };
    for (i64 r = 0; r < R; ++r) {
        const bool other = r % B == 1;
        if (other || r / B < again) compare("a row that an infinite key does not reach", r, key[r]);
        if (other || r / B > 0) compare("a row that an infinite gradient does not reach", r, grad[r]);
    }
}

// Every call stops at the third question, be it one long sequence or one of many short ones.
void check_interruptions(Isa isa) {
    int asked = 0;
    Interrupt interrupt{[](void* data) { return ++*static_cast<int*>(data) == 3; }, &asked, 0};
    const Run run{1, &interrupt};
    const auto stopped = [&](const char* what, float last) {  // the number that would be written last
        ++checks;
        if (!interrupt.stop || asked != 3 || !std::isnan(last)) {
            ++failures;
            std::printf("FAILED %s %s: not interrupted (asked %d times)\n", name(isa), what, asked);
        }
        asked = interrupt.stop = 0;
    };
    const auto rows_of = [](i64 T, i64 B, i64 N) { return Rows{T, B, N, T * B, nullptr, nullptr}; };
    const auto ones = [](i64 count) { return Array<float>(Numbers(static_cast<std::size_t>(count), 1)); };

    for (const auto& size : {std::array<i64, 3>{200, 1, 0}, {1, 200, 0}, {200, 1, 1}, {1, 200, 1}}) {
        const i64 T = size[0], B = size[1], R = T * B;
        const Array<float> given = ones(R), marks = ones(R);
        Array<float> out(R), last(B), by_q(R), by_start(B);
        const float* const ones_at = given.get();
        const DeltaInputs in{1, 1, 1, 1, 8, ones_at, ones_at, ones_at, ones_at, nullptr, 1, ones_at, nullptr,
                             size[2] > 0};
        delta_table(isa, 4).forward({rows_of(T, B, 1), in, out.get(), last.get(), nullptr, run});
        stopped("delta forward", out.data[R - 1]);
        delta_table(isa, 4).backward({rows_of(T, B, 1), in, marks.get(), given.get(), nullptr, by_q.get(), nullptr, nullptr,
                                      nullptr, nullptr, by_start.get(), nullptr, run});
        stopped("delta backward", by_q.data[T > 1 ? 0 : R - 1]);
    }
    const i64 T = 1000, N = 256;
    const Array<float> given = ones(T * N);
    Array<float> states(T * N), dots(T), by_h0(N);
    Array<double> inverse(T);
    const ReflectionTables tables{1, 1, T, nullptr, given.get(), given.get(), nullptr, 0, nullptr, 1, nullptr,
                                  inverse.get()};
    reflections_table(isa, 4).forward({rows_of(T, 1, N), {0, 0, nullptr}, tables, nullptr, nullptr, states.get(), nullptr,
                                       nullptr, dots.get(), run});
    stopped("reflections forward", states.data[T * N - 1]);
    ReflectionBackward back{};
    back.rows = rows_of(T, 1, N);
    back.tables = tables;
    back.clip = 1;
    back.states = back.saved = back.dots = back.grad_states = given.get();
    back.grad_h0 = by_h0.get();
    back.run = run;
    reflections_table(isa, 4).backward(back);
    stopped("reflections backward", by_h0.data[0]);
}

// A million gradients of the same row of the tables, and of the same parameter: added up in float alone, they would be off
// by a percent. Sums of 64 rows at most are of float.
void check_long_sums(Isa isa) {
    const i64 T = 1000000;
    const float each = 0.1f;
    const std::vector<i64> index(static_cast<std::size_t>(T), 0);
    const std::vector<unsigned char> resets(static_cast<std::size_t>(T), 1);  // every gradient is of its own step alone
    const Array<float> k(Numbers{1}), beta(Numbers{0}), add(Numbers{-1}), slope(Numbers{0.5});
    const Array<float> grad(Numbers(static_cast<std::size_t>(T), each)), z(Numbers(static_cast<std::size_t>(T), -1)),
        dots(Numbers(static_cast<std::size_t>(T), 0));
    Array<double> inverse(Numbers{1});
    Array<float> by_add(1), by_slope(1);
    Interrupt interrupt{nullptr, nullptr, 0};
    ReflectionBackward back{};
    back.rows = {T, 1, 1, T, nullptr, nullptr, resets.data()};
    back.phi = {5, 0, slope.get()};
    back.tables = {1, 1, 1, index.data(), k.get(), beta.get(), nullptr, 0, nullptr, 1, add.get(), inverse.get()};
    back.clip = 1;
    back.states = back.saved = z.get();
    back.dots = dots.get();
    back.grad_states = grad.get();
    back.grad_add = by_add.get();
    back.grad_parameter = by_slope.get();
    back.run = {1, &interrupt};
    reflections_table(isa, 4).backward(back);
    const std::string where = std::string(name(isa)) + " a million rows";
    const double sum = static_cast<double>(T) * static_cast<double>(each);
    close("grad_add", where, by_add, {sum / 2}, 8);
    close("grad_parameter", where, by_slope, {-sum}, 8);
}

// The same turn over many steps, forward and back: an angle rounded to float32 would be off by its error times their number,
// where the roundings of states grow with its square root.
void check_many_turns(Isa isa) {
    const i64 T = 100000, N = 5, half = N / 2, far = N - half;
    std::mt19937 random(7);
    const Numbers start = normal(random, N), end = normal(random, N);
    Numbers turn;
    for (int part = 0; part < 4; ++part)
        for (i64 n = 0; n < half; ++n) {
            const double angle = 1.0 + static_cast<double>(n), exact = part < 2 ? std::cos(angle) : std::sin(angle);
            turn.push_back(part % 2 ? exact - static_cast<double>(static_cast<float>(exact)) : static_cast<float>(exact));
        }
    std::vector<long double> h(start.begin(), start.end()), g(end.begin(), end.end());
    for (i64 t = 0; t < T; ++t)
        for (i64 n = 0; n < half; ++n) {
            const long double c = std::cos(1.0 + static_cast<double>(n)), s = std::sin(1.0 + static_cast<double>(n));
            const long double x = h[n], y = h[far + n], u = g[n], v = g[far + n];
            h[n] = c * x - s * y;
            h[far + n] = c * y + s * x;
            g[n] = c * u + s * v;
            g[far + n] = c * v - s * u;
        }
    const std::vector<i64> index(static_cast<std::size_t>(T), 0);
    const Array<float> k(Numbers(N, 1)), beta(Numbers{0}), turns(turn), h0(start), grad_last(end);
    Array<float> states(T * N), dots(T), last(N), grad_h0(N);
    Array<double> inverse(1);
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run run{1, &interrupt};
    const Rows rows{T, 1, N, T, nullptr, nullptr};
    const ReflectionTables tables{1, 1, 1, index.data(), k.get(), beta.get(), nullptr, 0, turns.get(), 1, nullptr,
                                  inverse.get()};
    reflections_table(isa, 4).forward({rows, {0, 0, nullptr}, tables, h0.get(), nullptr, states.get(), nullptr, last.get(),
                                       dots.get(), run});
    ReflectionBackward back{};
    back.rows = rows;
    back.tables = tables;
    back.clip = std::numeric_limits<double>::infinity();
    back.h0 = h0.get();
    back.states = back.saved = states.get();
    back.dots = dots.get();
    back.grad_last = grad_last.get();
    back.grad_h0 = grad_h0.get();
    back.run = run;
    reflections_table(isa, 4).backward(back);
    const std::string where = std::string(name(isa)) + " many turns";
    close("last", where, last, Numbers(h.begin(), h.end()), std::sqrt(double(T)));
    close("grad_h0", where, grad_h0, Numbers(g.begin(), g.end()), std::sqrt(double(T)));
}

void check_per_step(Isa isa) {
    check_type<float>(isa);
    check_type<double>(isa);
    for (const bool products : {false, true}) check_not_finite<float>(isa, products);
    for (const bool products : {false, true}) check_not_finite<double>(isa, products);
    check_interruptions(isa);
    check_long_sums(isa);
    check_many_turns(isa);
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
        ++checks;
        if (H > 1 && gradient.data[H - 1] != 0) {
            ++failures;
            std::printf("FAILED %s: the angle of a unit alone has a gradient\n", where.c_str());
        }
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
