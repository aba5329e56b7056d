// The Python module orthornn._native: the kernels on addresses, for which tensors are asked. Every address is checked
// (null, alignment), every size and index too, before the interpreter lock is released; nothing else is known of the memory
// behind an address.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "online.hpp"
#include "parallel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace orthornn {

void add_delta(nb::module_&);        // delta_bindings.cpp
void add_reflections(nb::module_&);  // reflections_bindings.cpp

// Where an array lies; 0 for none. From Python: a contiguous tensor, whose data_ptr() it is, None, or the number itself.
struct Address {
    std::uintptr_t at = 0;
    explicit operator bool() const { return at != 0; }
};

}  // namespace orthornn

template <>
struct nb::detail::type_caster<orthornn::Address> {
    NB_TYPE_CASTER(orthornn::Address, const_name("torch.Tensor | int"))

    bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
        value.at = 0;
        if (source.is_none()) return true;
        static PyObject* const method = PyUnicode_InternFromString("data_ptr");
        PyObject* tensor = source.ptr();
        const object number = PyLong_Check(tensor)
                                  ? borrow(source)
                                  : steal(PyObject_VectorcallMethod(method, &tensor, 1, nullptr));  // in the stable ABI
        if (number.is_valid()) value.at = PyLong_AsSize_t(number.ptr());
        if (!PyErr_Occurred()) return true;
        PyErr_Clear();
        return false;
    }
};

namespace orthornn {
namespace {

// Checks what comes from Python; messages say what came and what was needed.
struct Checked {
    i64 element;  // bytes

    explicit Checked(i64 element_size) : element(element_size) {
        if (element != 4 && element != 8) fail("element_size must be 4 or 8; got " + std::to_string(element));
    }
    [[noreturn]] static void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

    static void size(const char* what, i64 value, i64 low) {
        if (value < low || value > (i64(1) << 40))
            fail(std::string(what) + " must be at least " + std::to_string(low) + "; got " + std::to_string(value));
    }
    void* array(const char* what, Address address, i64 count, bool needed = true, i64 bytes = 0) const {
        const i64 unit = bytes ? bytes : element;
        if (address.at % static_cast<std::uintptr_t>(unit))
            fail(std::string(what) + " must be aligned to " + std::to_string(unit) + " bytes");
        if (!address && needed && count > 0) fail(std::string(what) + " must not be null");
        return reinterpret_cast<void*>(address.at);
    }
};

struct Sequences {
    Rows rows;
    std::vector<i64> lengths;
};

Sequences sequences(const Checked& check, i64 T, i64 B, i64 N, i64 R, Address steps, Address resets) {
    Checked::size("T", T, 0);
    Checked::size("B", B, 0);
    Checked::size("N", N, 1);
    Checked::size("R", R, 0);
    Sequences s;
    s.rows = {T, B, N, R, static_cast<const i64*>(check.array("batch_sizes", steps, 0, false, 8)), nullptr,
              static_cast<const unsigned char*>(check.array("resets", resets, R, false, 1))};
    if (!steps) {
        if (R != T * B) Checked::fail("R must be T * B = " + std::to_string(T * B) + "; got " + std::to_string(R));
        return s;
    }
    s.lengths.assign(static_cast<std::size_t>(B), 0);
    i64 total = 0, before = B;
    for (i64 t = 0; t < T; ++t) {
        const i64 here = s.rows.steps[t];
        if (here < 1 || here > before || (t == 0 && here != B))
            Checked::fail("batch_sizes must start with B, never grow and stay positive; got " + std::to_string(here) +
                          " at step " + std::to_string(t));
        total += here;
        for (i64 b = here; b < before; ++b) s.lengths[static_cast<std::size_t>(b)] = t;
        before = here;
    }
    for (i64 b = 0; b < (T ? before : 0); ++b) s.lengths[static_cast<std::size_t>(b)] = T;
    if (total != R) Checked::fail("batch_sizes must add up to R = " + std::to_string(R) + "; got " +
                                  std::to_string(total));
    s.rows.lengths = s.lengths.data();
    return s;
}

constexpr bool trained(int code) { return code == 2 || code == 5 || code == 6 || code == 7; }
constexpr bool keeps_z(int code) { return code == 5 || code == 7 || code == 8; }

Phi phi(const Checked& check, int code, double slope, Address parameter, i64 N) {
    if (code < 0 || code > 8) Checked::fail("activation must be a code from 0 to 8; got " + std::to_string(code));
    if (code == 7 && N % 2) Checked::fail("complex_modrelu needs an even N; got " + std::to_string(N));
    return {code, slope, check.array("parameter", parameter, N / (code == 7 ? 2 : 1), trained(code))};
}

Transition transition(const Checked& check, i64 N, i64 M, Address W, Address U, Address S, Address c, Address s,
                      Address rotations) {
    Checked::size("M", M, 0);
    if (!c != !s) Checked::fail("c and s come together");
    if (W && (U || S || c)) Checked::fail("W excludes U, S, c and s");
    if (rotations && (W || M || c)) Checked::fail("rotations exclude W, M and c");
    return {check.array("W", W, N * N, false), check.array("U", U, N * M, !W), check.array("S", S, M * M, !W),
            check.array("c", c, N, false), check.array("s", s, N, false), M,
            static_cast<const double*>(check.array("rotations", rotations, 2 * N, false, 8))};
}

Input input(const Checked& check, i64 R, i64 N, int kind, Address x, Address weight, Address bias, i64 I) {
    if (kind < 0 || kind > 2) Checked::fail("input kind must be 0, 1 or 2; got " + std::to_string(kind));
    const InputKind k = static_cast<InputKind>(kind);
    if (k != InputKind::projected) Checked::size("I", I, 0);
    const bool tokens = k == InputKind::tokens;
    const Input in{k, check.array("x", x, k == InputKind::projected ? R * N : tokens ? R : R * I, true, tokens ? 8 : 0),
                   check.array("weight_ih", weight, N * I, k != InputKind::projected),
                   check.array("bias", bias, N, false), I};
    if (!tokens) return in;
    const i64* token = static_cast<const i64*>(in.rows);
    for (i64 r = 0; r < R; ++r)
        if (token[r] < 0 || token[r] >= I)
            throw nb::index_error(("tokens must lie in [0, " + std::to_string(I) + "); got " +
                                   std::to_string(token[r]) + " in row " + std::to_string(r)).c_str());
    return in;
}

// The interrupt that asks Python for signals, at most twenty times a second.
struct Signals {
    using Clock = std::chrono::steady_clock;
    Interrupt interrupt{ask, this, 0};
    Clock::time_point asked = Clock::now();

    static bool ask(void* data) {
        Signals& self = *static_cast<Signals*>(data);
        const Clock::time_point now = Clock::now();
        if (now - self.asked < std::chrono::milliseconds(50)) return false;
        self.asked = now;
        nb::gil_scoped_acquire lock;
        return PyErr_CheckSignals() != 0;
    }
};

template <class Call>
void execute(void (*Table::*operation)(const Call&), Call& call, i64 element, int threads) {
    const Table& kernels = table(chosen(), static_cast<int>(element));
    Signals signals;
    call.run = {threads < 1 ? 1 : threads, &signals.interrupt};
    {
        nb::gil_scoped_release unlocked;
        (kernels.*operation)(call);
    }
    if (signals.interrupt.stop) throw nb::python_error();
}

void forward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, i64 M, Address W, Address U, Address S,
             Address c, Address s, int activation, double slope, Address parameter, int input_kind, Address x,
             Address weight_ih, Address bias, i64 I, Address h0, Address states, Address kept, Address last,
             Address h_tilde, int threads, Address rotations, Address resets, Address restart) {
    const Checked check(element_size);
    const Sequences seq = sequences(check, T, B, N, R, batch_sizes, resets);
    Forward call{};
    call.rows = seq.rows;
    call.transition = transition(check, N, M, W, U, S, c, s, rotations);
    call.phi = phi(check, activation, slope, parameter, N);
    call.input = input(check, R, N, input_kind, x, weight_ih, bias, I);
    call.h0 = check.array("h0", h0, B * N, false);
    call.restart = check.array("restart", restart, B * N, false);
    call.states = check.array("states", states, R * N, false);
    call.kept = keeps_z(activation) ? check.array("kept", kept, R * N, false) : nullptr;
    call.last = check.array("last", last, B * N, false);
    call.h_tilde = check.array("h_tilde", h_tilde, R * M, false);
    execute(&Table::forward, call, element_size, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, i64 M, Address W, Address U, Address S,
              Address c, Address s, int activation, double slope, Address parameter, double clip, Address kept,
              Address states, Address h0, Address grad_states, Address grad_last, Address delta, Address grad_h0,
              Address grad_parameter, Address grad_c, Address grad_s, Address grad_W, Address packed, Address free,
              Address h_tilde, Address grad_reflectors, int input_kind, Address x, i64 I, Address grad_weight_ih,
              Address grad_bias, int threads, Address rotations, Address resets, Address restart,
              Address grad_restart) {
    const Checked check(element_size);
    const Sequences seq = sequences(check, T, B, N, R, batch_sizes, resets);
    Backward call{};
    call.rows = seq.rows;
    call.transition = transition(check, N, M, W, U, S, c, s, rotations);
    call.phi = phi(check, activation, slope, parameter, N);
    if (!(clip > 0)) Checked::fail("clip must be positive (infinity for none); got " + std::to_string(clip));
    if (!grad_c != !grad_s) Checked::fail("grad_c and grad_s come together");
    if (grad_c && !c) Checked::fail("grad_c needs a base");
    call.clip = clip;
    call.kept = check.array("kept", kept, R * N);
    call.states = check.array("states", states, R * N, bool(grad_c) || !keeps_z(activation));
    call.h0 = check.array("h0", h0, B * N, false);
    call.grad_states = check.array("grad_states", grad_states, R * N, false);
    call.grad_last = check.array("grad_last", grad_last, B * N, false);
    call.delta = check.array("delta", delta, R * N, false);
    call.grad_h0 = check.array("grad_h0", grad_h0, B * N, false);
    call.restart = check.array("restart", restart, B * N, false);
    call.grad_restart = check.array("grad_restart", grad_restart, B * N, false);
    call.grad_parameter = check.array("grad_parameter", grad_parameter, N, false);
    call.grad_c = check.array("grad_c", grad_c, N, false);
    call.grad_s = check.array("grad_s", grad_s, N, false);
    call.grad_W = check.array("grad_W", grad_W, N * N, false);
    if (grad_W && !W && !rotations) Checked::fail("grad_W needs W or rotations");
    if (grad_reflectors && (W || rotations)) Checked::fail("grad_reflectors excludes W and rotations");
    if (grad_reflectors && !packed == !free) Checked::fail("give either packed or free reflectors");
    if (packed && M > N) Checked::fail("packed reflectors have M of at most N");
    call.packed = check.array("packed", packed, 0, false);
    call.free = check.array("free", free, 0, false);
    call.h_tilde = check.array("h_tilde", h_tilde, R * M, bool(grad_reflectors));
    call.grad_reflectors = check.array("grad_reflectors", grad_reflectors, 0, false);
    if (input_kind == static_cast<int>(InputKind::projected)) {
        if (grad_weight_ih) Checked::fail("weight_ih has no gradient where x is projected");
        call.input = {InputKind::projected, nullptr, nullptr, nullptr, 0};
    } else if (grad_weight_ih) {
        call.input = input(check, R, N, input_kind, x, grad_weight_ih, {}, I);
    }
    call.grad_weight_ih = check.array("grad_weight_ih", grad_weight_ih, N * I, false);
    call.grad_bias = check.array("grad_bias", grad_bias, N, false);
    const FlushDenormals flush;
    execute(&Table::backward, call, element_size, threads);
}

void factors(i64 element_size, i64 N, i64 M, Address packed, Address free, Address U, Address S, int threads) {
    const Checked check(element_size);
    Checked::size("N", N, 1);
    Checked::size("M", M, 0);
    if (packed && M > N) Checked::fail("packed reflectors have M of at most N");
    if (!packed == !free && M) Checked::fail("give either packed or free reflectors");
    Factors call{};
    call.N = N;
    call.M = M;
    call.packed = check.array("packed", packed, 0, false);
    call.free = check.array("free", free, 0, false);
    call.U = check.array("U", U, N * M);
    call.S = check.array("S", S, M * M);
    execute(&Table::factors, call, element_size, threads);
}

void online_steps(i64 T, i64 H, i64 I, i64 K, Address parameters, Address gradient, Address moments, Address rates,
                  Address blocks, Address turns, Address turned, Address state, Address counts, Address x, Address target,
                  Address out, Address grad_out, i64 every, double first_decay, double second_decay, double epsilon) {
    const Checked check(8);
    Checked::size("T", T, 0);
    Checked::size("H", H, 1);
    Checked::size("I", I, 0);
    Checked::size("K", K, 1);
    Checked::size("every", every, 1);
    const i64 count = H + 1 + 2 * H * (I + 2 + K) + K;
    const auto array = [&](const char* what, Address at, i64 size, bool needed = true) {
        return static_cast<double*>(check.array(what, at, size, needed));
    };
    const Online call{T, H, I, K, array("parameters", parameters, count), array("gradient", gradient, count),
                      array("moments", moments, 2 * count, false), array("rates", rates, count, false),
                      array("blocks", blocks, 4 * H), array("turns", turns, H), array("turned", turned, 4 * H),
                      array("state", state, 2 * H * (3 + 2 * (2 + I))),
                      static_cast<i64*>(check.array("counts", counts, 2)), array("x", x, T * I),
                      array("target", target, T * K, false), array("out", out, T * K),
                      array("grad_out", grad_out, K, false), every, first_decay, second_decay, epsilon};
    nb::gil_scoped_release unlocked;
    online(call);
}

}  // namespace
}  // namespace orthornn

NB_MODULE(_native, m) {
    using namespace orthornn;
    const auto at = [](const char* name) { return nb::arg(name).none(); };
    m.doc() = "Sequence kernels on addresses; see orthornn.kernels for the interface meant for use.";
    m.attr("interface") = 6;  // rises with every change of what follows; orthornn.kernels.backends.cpp asks for it
    m.def("isa", [] { return std::string(name(chosen())); }, "The instruction set in use; ORTHORNN_ISA overrides it.");
    m.def("supported_isas", [] {
        std::vector<std::string> names;
        for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
            if (supported(isa)) names.push_back(name(isa));
        return names;
    }, "The instruction sets that this build and this processor have.");
    m.def("threading_runtime", []() -> std::optional<std::string> {
        const char* path = threading_runtime();
        return path ? std::optional<std::string>(path) : std::nullopt;
    }, "Path of the OpenMP runtime whose threads are used, or None.");
    m.def("ask_for_large_pages", [](Address memory, i64 bytes) {
        Checked::size("bytes", bytes, 0);
        ask_for_large_pages(reinterpret_cast<void*>(memory.at), static_cast<std::size_t>(bytes));
    }, "memory"_a, "bytes"_a, "Pages of 2 MiB, where the system has them, for memory that is about to be written.");
    m.def("forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"), "M"_a, at("W"),
          at("U"), at("S"), at("c"), at("s"), "activation"_a, "slope"_a, at("parameter"), "input_kind"_a, at("x"),
          at("weight_ih"), at("bias"), "I"_a, at("h0"), at("states"), at("kept"), at("last"), at("h_tilde"),
          "threads"_a, at("rotations") = nb::none(), at("resets") = nb::none(), at("restart") = nb::none());
    m.def("backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"), "M"_a, at("W"),
          at("U"), at("S"), at("c"), at("s"), "activation"_a, "slope"_a, at("parameter"), "clip"_a, at("kept"),
          at("states"), at("h0"), at("grad_states"), at("grad_last"), at("delta"), at("grad_h0"),
          at("grad_parameter"), at("grad_c"), at("grad_s"), at("grad_W"), at("packed"), at("free"), at("h_tilde"),
          at("grad_reflectors"), "input_kind"_a, at("x"), "I"_a, at("grad_weight_ih"), at("grad_bias"), "threads"_a,
          at("rotations") = nb::none(), at("resets") = nb::none(), at("restart") = nb::none(),
          at("grad_restart") = nb::none());
    m.def("online", &online_steps, nb::kw_only(), "T"_a, "H"_a, "I"_a, "K"_a, at("parameters"), at("gradient"),
          at("moments"), at("rates"), at("blocks"), at("turns"), at("turned"), at("state"), at("counts"), at("x"),
          at("target"), at("out"), at("grad_out"), "every"_a, "first_decay"_a, "second_decay"_a, "epsilon"_a);
    m.def("factors", &factors, nb::kw_only(), "element_size"_a, "N"_a, "M"_a, at("packed"), at("free"), at("U"), at("S"),
          "threads"_a);
    add_delta(m);
    add_reflections(m);
}
