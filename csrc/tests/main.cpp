// Every instruction set of this processor against plain loops in double precision, on sizes that fill no vector, panel or
// block; the same bits on 1, 2 and 4 threads; interruption. Arrays have exactly the size the kernels may touch, so that
// the address sanitizer sees one element too many.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#if defined(__linux__)
#include <dlfcn.h>
#endif

#include "check.hpp"
#include "parallel.hpp"

using namespace orthornn;

namespace {

struct Size {
    i64 T, B, N, M;  // M < 0: dense
    bool base, ragged;
    int input;  // InputKind
    i64 I;
    bool free = false;  // reflectors (N, M), taken as they are
    bool resets = false;
};

std::string describe(Isa isa, const Size& z, int code, std::size_t bytes) {
    char text[200];
    std::snprintf(text, sizeof text, "%s float%d T=%d B=%d N=%d M=%d base=%d ragged=%d input=%d free=%d resets=%d phi=%d",
                  name(isa),
                  static_cast<int>(8 * bytes), static_cast<int>(z.T), static_cast<int>(z.B), static_cast<int>(z.N),
                  static_cast<int>(z.M), z.base, z.ragged, z.input, z.free, z.resets, code);
    return text;
}

template <class T>
void run(Isa isa, const Size& z, int code, int threads, bool compare, std::vector<T>* bits, int attempt = 0) {
    std::mt19937 random(static_cast<unsigned>(7 + z.N + 31 * z.B + 1009 * code + 100003 * attempt));
    const i64 N = z.N, M = z.M < 0 ? 0 : z.M;
    const bool dense = z.M < 0;
    reference::Problem q{z.T, z.B, N, M, 0, {}, code, 0.1, 0.8, {}, {}, {}, {}, {}, {}};
    std::vector<i64> lengths(static_cast<std::size_t>(z.B), z.T);
    if (z.ragged)
        for (i64 b = 1; b < z.B; ++b) lengths[b] = std::max<i64>(1, lengths[b - 1] - static_cast<i64>(random() % 3));
    for (i64 t = 0; t < z.T; ++t) {
        i64 count = 0;
        for (i64 b = 0; b < z.B; ++b) count += lengths[b] > t;
        q.steps.push_back(count);
        q.R += count;
    }
    // Rotations of the pairs, and in turn reflections of them; an odd middle unit is its own partner.
    Numbers c = normal(random, z.base ? N : 0, 3), s = c;
    for (i64 i = 0; i < static_cast<i64>(c.size()); ++i) {
        const i64 half = N / 2, other = N - half + i;
        const double angle = c[i];
        if (i < half) {
            c[i] = c[other] = static_cast<float>(std::cos(angle));
            s[other] = static_cast<float>(std::sin(angle));
            s[i] = i % 2 ? s[other] : -s[other];
            if (i % 2) c[other] = -c[other];
        } else if (i < N - half) {
            c[i] = -0.25;  // not 1 in all: what leaves this unit out would be right
            s[i] = -0.75;
        }
    }
    q.W = dense ? normal(random, N * N, 1 / std::sqrt(double(N))) : Numbers(static_cast<std::size_t>(N * N));
    const i64 reflector_size = z.free ? N * M : N * M - M * (M - 1) / 2;
    const Numbers reflectors = normal(random, dense ? 0 : reflector_size);
    const auto partner = [&](i64 k) { return k < N / 2 ? N - N / 2 + k : k >= N - N / 2 ? k - (N - N / 2) : k; };
    const auto reflect = [&](const Numbers& of, i64 j, Numbers& e) {  // e = H_j e
        const auto u = [&](i64 i) { return z.free ? of[i * M + j] : i < j ? 0 : of[j * N - j * (j - 1) / 2 + i - j]; };
        double squared = 0, along = 0;
        for (i64 i = 0; i < N; ++i) {
            squared += u(i) * u(i);
            along += u(i) * e[i];
        }
        for (i64 i = 0; i < N; ++i) e[i] -= 2 * along / squared * u(i);
    };
    const auto column = [&](const Numbers& of, i64 k) {  // of W = H_1 ... H_M B
        Numbers e(static_cast<std::size_t>(N));
        e[k] += z.base ? c[k] : 1;
        if (z.base) e[partner(k)] += s[partner(k)];
        for (i64 j = M; j-- > 0;) reflect(of, j, e);
        return e;
    };
    for (i64 k = 0; k < (dense ? 0 : N); ++k) {
        const Numbers e = column(reflectors, k);
        for (i64 i = 0; i < N; ++i) q.W[i * N + k] = e[i];
    }
    q.parameter = normal(random, reference::parameter_size(code, N), 0.3);
    for (double& p : q.parameter) {
        if (code == 2) p = static_cast<float>(1 + p);
        if (code == 6 || code == 7) p = -std::fabs(p);  // b > 0 makes phi jump at zero
    }
    q.h0 = normal(random, z.B * N);
    if (code % 2) q.grad_states = normal(random, q.R * N);
    if (!(code % 2) || code == 3) q.grad_last = normal(random, z.B * N);
    q.restart = normal(random, z.resets ? z.B * N : 0);
    for (i64 r = 0; r < (z.resets ? q.R : 0); ++r) q.resets.push_back(random() % 3 == 0);
    const Numbers V = normal(random, N * z.I, 0.5), bias = normal(random, z.input ? N : 0, 0.3);
    const Numbers numbers = normal(random, z.input == 0 ? q.R * N : z.input == 1 ? q.R * z.I : 0, 0.7);
    std::vector<i64> tokens;
    for (i64 r = 0; r < (z.input == 2 ? q.R : 0); ++r) tokens.push_back(static_cast<i64>(random() % z.I));
    q.x = numbers;
    if (z.input) {
        q.x.assign(static_cast<std::size_t>(q.R * N), 0);
        for (i64 r = 0; r < q.R; ++r)
            for (i64 n = 0; n < N; ++n) {
                double sum = bias[n];
                if (z.input == 2) sum += V[n * z.I + tokens[r]];
                else for (i64 i = 0; i < z.I; ++i) sum += V[n * z.I + i] * numbers[r * z.I + i];
                q.x[r * N + n] = sum;
            }
    }

    const Table& kernels = table(isa, sizeof(T));
    Interrupt interrupt{nullptr, nullptr, 0};
    const Run how{threads, &interrupt};
    const Rows rows{z.T, z.B, N, q.R, z.ragged ? q.steps.data() : nullptr, z.ragged ? lengths.data() : nullptr,
                    q.R && z.resets ? q.resets.data() : nullptr};
    const Array<T> W(dense ? q.W : Numbers()), P(reflectors), C(c), S2(s), parameter(q.parameter), h0(q.h0), v(V), bb(bias),
        x(numbers), gs(q.grad_states), gl(q.grad_last), restart(q.restart);
    Array<T> U(N * M), S(M * M), states(q.R * N), saved(reference::keeps_z(code) ? q.R * N : 0), last(z.B * N),
        h_tilde(q.R * M), delta(q.R * N), grad_h0(z.B * N), grad_restart(restart.size),
        grad_parameter(static_cast<i64>(q.parameter.size()));
    T *const packed = z.free ? nullptr : P.get(), *const free = z.free ? P.get() : nullptr;
    if (!dense) kernels.factors({N, M, packed, free, U.get(), S.get(), how});
    const Transition w{W.get(), U.get(), S.get(), C.get(), S2.get(), M, nullptr};
    const Phi f{code, q.slope, parameter.get()};
    const void* source = z.input == 2 ? static_cast<const void*>(tokens.data()) : x.get();
    const Input input{static_cast<InputKind>(z.input), source, v.get(), bb.get(), z.I};
    kernels.forward({rows, w, f, input, h0.get(), restart.get(), states.get(), saved.get(), last.get(), h_tilde.get(), how});
    Array<T> grad_W(dense ? N * N : 0), grad_U(dense ? 0 : reflector_size), grad_V(z.input ? N * z.I : 0), grad_b(N),
        grad_c(z.base ? N : 0), grad_s(z.base ? N : 0);
    Backward back{};
    back.rows = rows;
    back.transition = w;
    back.phi = f;
    back.clip = q.clip;
    back.saved = saved.size ? saved.get() : states.get();
    back.states = saved.size && code != 5 ? nullptr : states.get();  // where z is kept, states may be missing
    back.h0 = h0.get();
    back.restart = restart.get();
    back.grad_states = gs.get();
    back.grad_last = gl.get();
    back.delta = delta.get();
    back.grad_h0 = grad_h0.get();
    back.grad_restart = grad_restart.get();
    back.grad_parameter = grad_parameter.get();
    back.grad_W = grad_W.get();
    if (back.states) {
        back.grad_c = grad_c.get();
        back.grad_s = grad_s.get();
    }
    back.packed = packed;
    back.free = free;
    back.h_tilde = h_tilde.get();
    back.grad_reflectors = grad_U.get();
    back.input = input;
    back.grad_weight_ih = grad_V.get();
    back.grad_bias = grad_b.get();
    back.run = how;
    kernels.backward(back);
    if (bits) {
        bits->assign(states.data.get(), states.data.get() + states.size);
        bits->insert(bits->end(), delta.data.get(), delta.data.get() + delta.size);
        bits->insert(bits->end(), h_tilde.data.get(), h_tilde.data.get() + h_tilde.size);
        bits->insert(bits->end(), grad_h0.data.get(), grad_h0.data.get() + grad_h0.size);
    }
    if (!compare) return;

    const reference::Solution want = reference::solve(q);
    // Other numbers where rounding, which differs between instruction sets, chooses the side of a kink.
    if (reference::to_kink(q, want.z) < 2e-6) return run<T>(isa, z, code, threads, compare, bits, attempt + 1);
    const std::string where = describe(isa, z, code, sizeof(T));
    const double operations = static_cast<double>(std::max<i64>(1, z.T)) * (N + M + 2), sums = operations + q.R;
    close("states", where, states, want.states, operations);
    close("last", where, last, want.last, operations);
    if (saved.size) close("z", where, saved, want.z, operations);
    close("delta", where, delta, want.delta, operations);
    close("grad_h0", where, grad_h0, want.grad_h0, operations);
    if (z.resets) close("grad_restart", where, grad_restart, want.grad_restart, operations);
    close("grad_parameter", where, grad_parameter, want.grad_parameter, sums);
    if (dense) {
        close("grad_W", where, grad_W, want.grad_W, sums);
    } else {
        // d/du of <dL/dW, H_1 ... H_M B> by central differences of the product.
        const auto objective = [&](const Numbers& at) {
            double total = 0;
            for (i64 k = 0; k < N; ++k) {
                const Numbers e = column(at, k);
                for (i64 i = 0; i < N; ++i) total += want.grad_W[i * N + k] * e[i];
            }
            return total;
        };
        Numbers at = reflectors;
        double largest = 1, worst = 0;
        for (i64 i = 0; i < reflector_size; i += 1 + reflector_size / 7) {
            const double h_step = 1e-5;
            at[i] = reflectors[i] + h_step;
            const double above = objective(at);
            at[i] = reflectors[i] - h_step;
            const double expected = (above - objective(at)) / (2 * h_step);
            at[i] = reflectors[i];
            largest = std::fmax(largest, std::fabs(expected));
            const double error = std::fabs(static_cast<double>(grad_U.data[i]) - expected);
            worst = error <= worst ? worst : error;
        }
        ++checks;
        double scale = 1;
        for (double g : want.grad_W) scale = std::fmax(scale, std::fabs(g));
        const double bound = (8 * std::numeric_limits<T>::epsilon() * sums + 1e-7) * (largest + scale);
        if (!(worst <= bound)) {
            ++failures;
            std::printf("FAILED %s: grad_U is off by %g, allowed %g\n", where.c_str(), worst, bound);
        }
    }
    if (back.grad_c) {  // entries of dL/dB = H_M ... H_1 dL/dW
        Numbers want_c(static_cast<std::size_t>(N)), want_s = want_c;
        for (i64 k = 0; k < N; ++k) {
            Numbers g(static_cast<std::size_t>(N));
            for (i64 i = 0; i < N; ++i) g[i] = want.grad_W[i * N + k];
            for (i64 j = 0; j < M; ++j) reflect(reflectors, j, g);
            want_c[k] = g[k];
            want_s[partner(k)] = g[partner(k)];
        }
        close("grad_c", where, grad_c, want_c, sums);
        close("grad_s", where, grad_s, want_s, sums);
    }
    if (!dense && M == 0 && z.base) {  // the same transition given as rotations
        Numbers turns = c;
        turns.insert(turns.end(), s.begin(), s.end());
        const Array<double> R(turns);
        const Transition r{nullptr, nullptr, nullptr, nullptr, nullptr, 0, R.get()};
        Array<T> again(q.R * N), z_again(saved.size), last_again(z.B * N), delta_again(q.R * N), h0_again(z.B * N),
            restart_again(restart.size), by_W(N * N);
        kernels.forward(
            {rows, r, f, input, h0.get(), restart.get(), again.get(), z_again.get(), last_again.get(), nullptr, how});
        close("states of rotations", where, again, want.states, operations);
        close("last of rotations", where, last_again, want.last, operations);
        Backward turned = back;
        turned.transition = r;
        turned.saved = saved.size ? z_again.get() : again.get();
        turned.states = again.get();
        turned.delta = delta_again.get();
        turned.grad_h0 = h0_again.get();
        turned.packed = turned.free = turned.h_tilde = nullptr;
        turned.grad_reflectors = turned.grad_c = turned.grad_s = nullptr;
        turned.grad_restart = restart_again.get();
        turned.grad_W = by_W.get();
        kernels.backward(turned);
        close("delta of rotations", where, delta_again, want.delta, operations);
        close("grad_h0 of rotations", where, h0_again, want.grad_h0, operations);
        if (z.resets) close("grad_restart of rotations", where, restart_again, want.grad_restart, operations);
        close("grad_W of rotations", where, by_W, want.grad_W, sums);
    }
    Numbers want_V(static_cast<std::size_t>(grad_V.size)), want_b(static_cast<std::size_t>(N));
    for (i64 r = 0; r < q.R; ++r)
        for (i64 n = 0; n < N; ++n) {
            const double d = want.delta[r * N + n];
            want_b[n] += d;
            if (z.input == 2) want_V[n * z.I + tokens[r]] += d;
            else for (i64 i = 0; i < (z.input ? z.I : 0); ++i) want_V[n * z.I + i] += d * numbers[r * z.I + i];
        }
    close("grad_V", where, grad_V, want_V, sums);
    close("grad_bias", where, grad_b, want_b, sums);
    // Without delta: the parts keep only the rows that they have not summed.
    Array<T> again(dense ? N * N : reflector_size);
    back.delta = nullptr;
    back.grad_W = dense ? again.get() : nullptr;
    back.grad_reflectors = dense ? nullptr : again.get();
    kernels.backward(back);
    const Array<T>& first = dense ? grad_W : grad_U;
    ++checks;
    for (i64 i = 0; i < first.size; ++i)
        if (again.data[i] != first.data[i]) {
            ++failures;
            std::printf("FAILED %s: other gradients where delta is not wanted\n", where.c_str());
            break;
        }
}

template <class T>
void run_all(Isa isa) {
    const Size sizes[] = {
        {3, 1, 1, -1, false, false, 0, 1}, {4, 1, 1, 1, false, false, 1, 2},  {5, 2, 2, 1, true, true, 2, 3},
        {6, 1, 34, -1, false, false, 1, 1}, {5, 1, 34, 5, true, false, 1, 1}, {4, 3, 17, 17, true, true, 0, 1},
        {3, 5, 20, 7, false, true, 2, 4},   {7, 6, 65, -1, false, true, 2, 5}, {4, 29, 40, 16, true, false, 1, 3},
        {3, 61, 22, -1, false, true, 0, 1}, {3, 61, 18, 18, false, true, 1, 4}, {2, 7, 130, 100, true, true, 0, 1},
        {2, 1, 300, 40, false, false, 0, 1}, {9, 13, 24, 0, true, false, 1, 2}, {6, 5, 9, 0, true, true, 2, 3},
        {3, 2, 1, 0, true, false, 1, 1},
        {300, 1, 8, 3, true, false, 1, 1},
        {400, 1, 70, 30, true, false, 2, 4}, {3, 2, 311, 40, true, false, 1, 1}, {3, 1, 400, 70, false, true, 0, 1},
        {130, 2, 60, -1, false, true, 1, 2}, {90, 3, 20, 6, true, false, 1, 2},  // 256 rows end within a step
        {0, 3, 6, 2, false, false, 0, 1},   {0, 2, 6, -1, false, false, 1, 1},
        {5, 3, 9, 14, true, true, 1, 2, true}, {4, 7, 33, 20, false, true, 2, 3, true},
        {3, 6, 40, 60, true, false, 0, 1, true},
    };
    for (const Size& z : sizes)
        for (int code = 0; code <= 8; ++code) {
            Size here = z;
            if (code == 7 && here.N % 2) ++here.N;
            for (int threads : {1, 3}) {
                here.resets = (code + threads) % 2 == (z.N > 20);
                run<T>(isa, here, code, threads, true, nullptr);
            }
        }
    // Sums over rows and factors that are worth several threads.
    const Size large[] = {
        {400, 2, 210, -1, false, true, 2, 5},
        {420, 1, 200, 190, true, false, 1, 2},
        {3, 7, 150, 140, true, true, 0, 1},
    };
    for (const Size& z : large)
        for (int code : {1, 8}) {
            Size here = z;
            here.resets = true;
            run<T>(isa, here, code, 3, true, nullptr);
        }
    const Size threaded[] = {{5, 2, 34, 5, true, false, 1, 1}, {5, 3, 50, 9, false, true, 1, 1},
                             {4, 53, 40, -1, false, true, 0, 1}, {4, 53, 40, 12, true, false, 0, 1}};
    for (const Size& z : threaded)
        for (int code : {1, 6, 8}) {
            std::vector<T> one, other;
            run<T>(isa, z, code, 1, false, &one);
            for (int threads : {2, 4}) {
                run<T>(isa, z, code, threads, false, &other);
                ++checks;
                if (one.size() != other.size() || std::memcmp(one.data(), other.data(), one.size() * sizeof(T))) {
                    ++failures;
                    std::printf("FAILED %s: other bits on %d threads\n", describe(isa, z, code, sizeof(T)).c_str(), threads);
                }
            }
        }
}

void check_interruption(Isa isa) {
    int asked = 0;
    Interrupt interrupt{[](void* data) { return ++*static_cast<int*>(data) == 3; }, &asked, 0};
    const i64 T = 100000, N = 16;
    Array<float> W(Numbers(N * N, 0.01)), x(Numbers(static_cast<std::size_t>(T * N), 1)), states(T * N);
    table(isa, 4).forward({{T, 1, N, T, nullptr, nullptr, nullptr},
                           {W.get(), nullptr, nullptr, nullptr, nullptr, 0, nullptr}, {0, 0, nullptr},
                           {InputKind::projected, x.get(), nullptr, nullptr, 0}, nullptr, nullptr, states.get(), nullptr, nullptr,
                           nullptr, {1, &interrupt}});
    ++checks;
    if (!interrupt.stop || asked != 3 || !std::isnan(states.data[T * N - 1])) {
        ++failures;
        std::printf("FAILED %s: not interrupted (asked %d times)\n", name(isa), asked);
    }
    // As many numbers in short sequences, none of which is long enough to ask.
    const i64 B = T / 2;
    Array<float> short_states(2 * B * N);
    asked = interrupt.stop = 0;
    table(isa, 4).forward({{2, B, N, 2 * B, nullptr, nullptr, nullptr},
                           {W.get(), nullptr, nullptr, nullptr, nullptr, 0, nullptr}, {0, 0, nullptr},
                           {InputKind::projected, x.get(), nullptr, nullptr, 0}, nullptr, nullptr, short_states.get(),
                           nullptr, nullptr, nullptr, {1, &interrupt}});
    ++checks;
    if (!interrupt.stop || asked != 3 || !std::isnan(short_states.data[B * N - 1])) {
        ++failures;
        std::printf("FAILED %s: short sequences are not interrupted (asked %d times)\n", name(isa), asked);
    }
}

// A backward pass stops in its middle, too.
void check_backward_interruption(Isa isa) {
    int asked = 0;
    Interrupt interrupt{[](void* data) { return ++*static_cast<int*>(data) == 3; }, &asked, 0};
    const i64 T = 1000, N = 128;
    const Array<float> W(Numbers(N * N, 0.01)), states(Numbers(static_cast<std::size_t>(T * N), 1));
    Array<float> grad_h0(N);
    Backward back{};
    back.rows = {T, 1, N, T, nullptr, nullptr, nullptr};
    back.transition.W = W.get();
    back.clip = 1;
    back.saved = back.states = back.grad_states = states.get();
    back.grad_h0 = grad_h0.get();
    back.run = {1, &interrupt};
    table(isa, 4).backward(back);
    ++checks;
    if (!interrupt.stop || asked != 3 || !std::isnan(grad_h0.data[0])) {
        ++failures;
        std::printf("FAILED %s: a backward pass is not interrupted (asked %d times)\n", name(isa), asked);
    }
}

// The length of a reflector changes nothing but its gradient, which goes with 1 / |u|, up to the largest numbers there are;
// one of length zero is no reflection and has no gradient; one that is not finite spoils every unit.
template <class T>
void check_lengths(Isa isa) {
    const i64 N = 7, M = 3, count = N * M - M * (M - 1) / 2, second = N, third = 2 * N - 1;  // where columns start
    std::mt19937 random(23);
    const Numbers h0 = normal(random, N), x = normal(random, N);
    Numbers u = normal(random, count), grad = normal(random, N);
    for (double& each : u) each = std::copysign(1 + std::fabs(std::remainder(each, 1)), each);  // largest exponents fit
    for (double& each : grad) each *= 0x1p20;  // keeps what is divided by |u| out of the denormal numbers
    struct Found {
        Array<T> states, grad;
    };
    const auto solve = [&](const Numbers& packed) {
        const Table& kernels = table(isa, sizeof(T));
        Interrupt interrupt{nullptr, nullptr, 0};
        const Run how{1, &interrupt};
        const Array<T> given(packed), start(h0), input(x), by_states(grad);
        Found found{Array<T>(N), Array<T>(count)};
        Array<T> U(N * M), S(M * M), h_tilde(M);
        kernels.factors({N, M, given.get(), nullptr, U.get(), S.get(), how});
        const Rows rows{1, 1, N, 1, nullptr, nullptr};
        const Transition w{nullptr, U.get(), S.get(), nullptr, nullptr, M, nullptr};
        kernels.forward({rows, w, {0, 0, nullptr}, {InputKind::projected, input.get(), nullptr, nullptr, 0}, start.get(),
                         nullptr, found.states.get(), nullptr, nullptr, h_tilde.get(), how});
        Backward back{};
        back.rows = rows;
        back.transition = w;
        back.clip = std::numeric_limits<double>::infinity();
        back.saved = back.states = found.states.get();
        back.h0 = start.get();
        back.grad_states = by_states.get();
        back.packed = given.get();
        back.h_tilde = h_tilde.get();
        back.grad_reflectors = found.grad.get();
        back.run = how;
        kernels.backward(back);
        return found;
    };
    const std::string where = std::string(name(isa)) + " float" + std::to_string(8 * sizeof(T)) + " reflectors";
    const auto check = [&](const char* what, bool good) {
        ++checks;
        if (good) return;
        ++failures;
        std::printf("FAILED %s: %s\n", where.c_str(), what);
    };
    const Found plain = solve(u);
    for (const int power : {-90, 100, std::numeric_limits<T>::max_exponent - 1}) {
        Numbers scaled = u;
        for (double& each : scaled) each = std::ldexp(each, power);
        const Found found = solve(scaled);
        check("their length changes states", !std::memcmp(found.states.get(), plain.states.get(), sizeof(T) * N));
        for (i64 i = 0; i < count; ++i) found.grad.data[i] = std::ldexp(found.grad.data[i], power);
        close("their gradient", where, found.grad, Numbers(plain.grad.get(), plain.grad.get() + count), 1);
    }
    Numbers zero = u, want = h0;
    for (i64 i = second; i < third; ++i) zero[i] = 0;
    for (const i64 j : {2, 0}) {
        const double* const column = zero.data() + (j ? third : 0);
        double squares = 0, along = 0;
        for (i64 i = j; i < N; ++i) {
            squares += column[i - j] * column[i - j];
            along += column[i - j] * want[i];
        }
        for (i64 i = j; i < N; ++i) want[i] -= 2 * along / squares * column[i - j];
    }
    for (i64 i = 0; i < N; ++i) want[i] += x[i];
    const Found without = solve(zero);
    close("states without one", where, without.states, want, N * M);
    bool finite = true, none = true;
    for (i64 i = 0; i < count; ++i) {
        finite = finite && std::isfinite(without.grad.data[i]);
        none = none && (i < second || i >= third || without.grad.data[i] == 0);
    }
    check("one of length zero has a gradient", finite && none);
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        Numbers spoiled = u;
        spoiled[second] = bad;
        const Found found = solve(spoiled);
        bool all = true;
        for (i64 i = 0; i < N; ++i) all = all && std::isnan(found.states.data[i]);
        check("one that is not finite leaves units as they are", all);
    }
}

// An infinite state before a reset is no part of the base's gradient.
void check_base_after_infinity(Isa isa) {
    for (const i64 B : {1, 5}) {
        const i64 T = 3, N = 4, R = T * B;
        std::vector<unsigned char> resets(static_cast<std::size_t>(R), 0);
        for (i64 b = 0; b < B; ++b) resets[B + b] = 1;
        const Array<float> c(Numbers(N, 0.6)), s(Numbers(N, 0.8)), h0(Numbers(B * N, 1)), restart(Numbers(B * N, 2)),
            grad(Numbers(R * N, 1));
        const auto gradient = [&](double before) {
            Array<float> states(Numbers(R * N, 1));
            for (i64 i = 0; i < B * N; ++i) states.data[i] = static_cast<float>(before);
            Array<float> grad_c(N), grad_s(N);
            Interrupt interrupt{nullptr, nullptr, 0};
            Backward back{};
            back.rows = {T, B, N, R, nullptr, nullptr, resets.data()};
            back.transition = {nullptr, nullptr, nullptr, c.get(), s.get(), 0, nullptr};
            back.clip = std::numeric_limits<double>::infinity();
            back.saved = back.states = states.get();
            back.h0 = h0.get();
            back.restart = restart.get();
            back.grad_states = grad.get();
            back.grad_c = grad_c.get();
            back.grad_s = grad_s.get();
            back.run = {1, &interrupt};
            table(isa, 4).backward(back);
            std::vector<float> found(grad_c.get(), grad_c.get() + N);
            found.insert(found.end(), grad_s.get(), grad_s.get() + N);
            return found;
        };
        ++checks;
        if (gradient(1) != gradient(std::numeric_limits<double>::infinity())) {
            ++failures;
            std::printf("FAILED %s: an infinite state before a reset reaches the base's gradient, B=%d\n", name(isa),
                        static_cast<int>(B));
        }
    }
}

// Coefficients are exact to more than float32: over many steps a rounded one would turn and stretch a state by its error
// times the number of steps, where the roundings of states have no direction and grow with its square root.
void check_many_rotations(Isa isa) {
    const i64 T = 100000, N = 5, half = N / 2, first = N - half;
    Numbers turns(2 * N);
    double *const c = turns.data(), *const s = c + N;
    for (i64 i = 0; i < half; ++i) {
        const double angle = 1.0 + static_cast<double>(i);
        c[i] = std::cos(angle);
        s[i] = std::sin(angle);
        c[first + i] = i ? -c[i] : c[i];  // a rotation and a reflection
        s[first + i] = i ? s[i] : -s[i];
    }
    c[half] = 0.3;
    s[half] = 0.7;
    std::mt19937 random(3);
    const Numbers start = normal(random, N), end = normal(random, N);
    std::vector<long double> h(start.begin(), start.end()), g(end.begin(), end.end());
    for (i64 t = 0; t < T; ++t) {
        const std::vector<long double> x = h, y = g;
        for (i64 i = 0; i < N; ++i) {
            const i64 partner = i < half ? first + i : i >= first ? i - first : i;
            h[i] = c[i] * x[i] + s[i] * x[partner];
            g[i] = c[i] * y[i] + s[partner] * y[partner];
        }
    }
    const Array<double> R(turns);
    const Array<float> x(Numbers(static_cast<std::size_t>(T * N))), h0(start), grad_last(end);
    Array<float> states(T * N), last(N), grad_h0(N);
    Interrupt interrupt{nullptr, nullptr, 0};
    const Rows rows{T, 1, N, T, nullptr, nullptr, nullptr};
    const Transition w{nullptr, nullptr, nullptr, nullptr, nullptr, 0, R.get()};
    const Phi phi{0, 0, nullptr};
    const Run how{1, &interrupt};
    const Input input{InputKind::projected, x.get(), nullptr, nullptr, 0};
    table(isa, 4).forward(
        {rows, w, phi, input, h0.get(), nullptr, states.get(), nullptr, last.get(), nullptr, how});
    Backward back{};
    back.rows = rows;
    back.transition = w;
    back.phi = phi;
    back.clip = std::numeric_limits<double>::infinity();
    back.saved = back.states = states.get();
    back.h0 = h0.get();
    back.grad_last = grad_last.get();
    back.grad_h0 = grad_h0.get();
    back.run = how;
    table(isa, 4).backward(back);
    const std::string where = std::string(name(isa)) + " many rotations";
    close("last", where, last, Numbers(h.begin(), h.end()), std::sqrt(double(T)));
    close("grad_h0", where, grad_h0, Numbers(g.begin(), g.end()), std::sqrt(double(T)));
}

// Each thread counts denormal numbers as zero as it is told, until it is told otherwise.
void check_denormals() {
    using Each = std::vector<bool>;
    const volatile float smallest = std::numeric_limits<float>::denorm_min();
    const auto lost = [&] { return smallest * 1.0f == 0.0f; };
    const bool others = threading_runtime() != nullptr;
    bool good = exchange_denormals({true, true, true}) == Each{false, false, false};
    const bool possible = lost();
    good = good && exchange_denormals({false, true, false}) == Each{possible, possible && others, possible && others};
    good = good && !lost() && exchange_denormals({false, false, false}) == Each{false, possible && others, false};
    good = good && exchange_denormals({false}) == Each{false} && !lost();
    ++checks;
    if (!good) {
        ++failures;
        std::printf("FAILED: denormal numbers do not count as told\n");
    }
}

}  // namespace

int main() {
#if defined(__linux__)
    // Stands for the runtime that torch loads.
    if (!dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL)) std::printf("no OpenMP runtime: threads run one after another\n");
#endif
    std::printf("threads: %s\n", threading_runtime() ? threading_runtime() : "none");
    for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (!supported(isa)) {
            std::printf("%s: not on this processor\n", name(isa));
            continue;
        }
        const int before = failures, checks_before = checks;
        run_all<float>(isa);
        run_all<double>(isa);
        check_interruption(isa);
        check_backward_interruption(isa);
        check_lengths<float>(isa);
        check_lengths<double>(isa);
        check_base_after_infinity(isa);
        check_many_rotations(isa);
        check_per_step(isa);
        std::printf("%s: %d checks, %d failed\n", name(isa), checks - checks_before, failures - before);
    }
    check_online();
    check_memory();
    check_denormals();
    std::printf("in all: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
