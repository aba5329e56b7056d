// The Python module orthornn._native: the kernels on addresses, for which tensors are asked. Every address is checked
// (null, alignment), every size and index too, before the interpreter lock is released; nothing else is known of the memory
// behind an address.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arguments.hpp"
#include "online.hpp"

using namespace nb::literals;

namespace orthornn {

void add_delta(nb::module_&);        // delta_bindings.cpp
void add_irregular(nb::module_&);    // irregular_bindings.cpp
void add_reflections(nb::module_&);  // reflections_bindings.cpp

namespace {

Transition transition(const Sequences& given, Address W, Address U, Address S, Address c, Address s, i64 M,
                      Address rotations) {
    at_least("M", M, 0);
    if (!c != !s) fail("Expected c and s together, but got one of them.");
    if (W && (U || S || c)) fail("Expected W, or U, S, c and s, but got both.");
    if (rotations && (W || M || c)) fail("Expected rotations, or W, M and c, but got both.");
    const i64 reflected = W ? 0 : M;
    return {given.optional("W", W),
            given.needed("U", U, reflected),
            given.needed("S", S, reflected),
            given.optional("c", c),
            given.optional("s", s),
            M,
            static_cast<const double*>(array_at("rotations", rotations, 8, false))};
}

void check_reflectors(Address packed, Address free, i64 N, i64 M, bool needed) {
    if (needed && !packed == !free) fail("Expected packed or free reflectors, but got both or neither.");
    if (packed && M > N) fail("Expected at most N packed reflectors, but got " + std::to_string(M) + ".");
}

Input input(const Sequences& given, int kind, Address x, Address weight, Address bias, i64 I) {
    if (kind < 0 || kind > 2) fail("Expected an input kind of 0, 1 or 2, but got " + std::to_string(kind) + ".");
    const InputKind k = static_cast<InputKind>(kind);
    const bool projected = k == InputKind::projected, tokens = k == InputKind::tokens;
    if (!projected) at_least("I", I, 0);
    const bool needed = given.R > 0 && (projected || tokens || I > 0);
    const Input in{k, array_at("x", x, tokens ? 8 : given.element, needed),
                   given.needed("weight_ih", weight, projected ? 0 : I), given.optional("bias", bias), I};
    const i64* const token = static_cast<const i64*>(in.rows);
    for (i64 r = 0; tokens && r < given.R; ++r) check_token(token[r], I, r);
    return in;
}

void forward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, Address W, Address U,
             Address S, Address c, Address s, i64 M, Address rotations, int activation, double slope, Address parameter,
             int input_kind, Address x, Address weight_ih, Address bias, i64 I, Address h0, Address restart, Address states,
             Address saved, Address last, Address h_tilde, int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    Forward call{};
    call.rows = given.rows;
    call.transition = transition(given, W, U, S, c, s, M, rotations);
    call.phi = phi(given, activation, slope, parameter);
    call.input = input(given, input_kind, x, weight_ih, bias, I);
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.states = given.optional("states", states);
    call.saved = call.phi.kind().keeps_z ? given.optional("saved", saved) : nullptr;
    call.last = given.optional("last", last);
    call.h_tilde = given.optional("h_tilde", h_tilde);
    execute(table(chosen(), element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, Address W, Address U,
              Address S, Address c, Address s, i64 M, Address rotations, int activation, double slope, Address parameter,
              double clip, Address saved, Address states, Address h0, Address restart, Address grad_states,
              Address grad_last, Address delta, Address grad_h0, Address grad_restart, Address grad_parameter,
              Address grad_c, Address grad_s, Address grad_W, Address packed, Address free, Address h_tilde,
              Address grad_reflectors, int input_kind, Address x, i64 I, Address grad_weight_ih, Address grad_bias,
              int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    Backward call{};
    call.rows = given.rows;
    call.transition = transition(given, W, U, S, c, s, M, rotations);
    call.phi = phi(given, activation, slope, parameter);
    check_clip(clip);
    if (!grad_c != !grad_s) fail("Expected grad_c and grad_s together, but got one of them.");
    if (grad_c && !c) fail("Expected c and s with grad_c, but got none.");
    call.clip = clip;
    call.saved = given.needed("saved", saved, R);
    call.states = given.needed("states", states, grad_c || !call.phi.kind().keeps_z ? R : 0);
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.grad_states = given.optional("grad_states", grad_states);
    call.grad_last = given.optional("grad_last", grad_last);
    call.delta = given.optional("delta", delta);
    call.grad_h0 = given.optional("grad_h0", grad_h0);
    call.grad_restart = given.optional("grad_restart", grad_restart);
    call.grad_parameter = given.optional("grad_parameter", grad_parameter);
    call.grad_c = given.optional("grad_c", grad_c);
    call.grad_s = given.optional("grad_s", grad_s);
    call.grad_W = given.optional("grad_W", grad_W);
    if (grad_W && !W && !rotations) fail("Expected W or rotations with grad_W, but got neither.");
    if (grad_reflectors && (W || rotations)) fail("Expected grad_reflectors, or W or rotations, but got both.");
    check_reflectors(packed, free, N, M, bool(grad_reflectors));
    call.packed = given.optional("packed", packed);
    call.free = given.optional("free", free);
    call.h_tilde = given.needed("h_tilde", h_tilde, grad_reflectors && M ? R : 0);
    call.grad_reflectors = given.optional("grad_reflectors", grad_reflectors);
    if (input_kind == static_cast<int>(InputKind::projected)) {
        if (grad_weight_ih) fail("Expected no grad_weight_ih where x is projected, but got one.");
        call.input = {InputKind::projected, nullptr, nullptr, nullptr, 0};
    } else if (grad_weight_ih) {
        call.input = input(given, input_kind, x, grad_weight_ih, {}, I);
    }
    call.grad_weight_ih = given.optional("grad_weight_ih", grad_weight_ih);
    call.grad_bias = given.optional("grad_bias", grad_bias);
    execute(table(chosen(), element_size).backward, call, threads);
}

void factors(i64 element_size, i64 N, i64 M, Address packed, Address free, Address U, Address S, int threads) {
    const Arrays given(element_size);
    at_least("N", N, 1);
    at_least("M", M, 0);
    check_reflectors(packed, free, N, M, M > 0);
    Factors call{};
    call.N = N;
    call.M = M;
    call.packed = given.optional("packed", packed);
    call.free = given.optional("free", free);
    call.U = given.needed("U", U, M);
    call.S = given.needed("S", S, M);
    execute(table(chosen(), element_size).factors, call, threads);
}

void online_steps(i64 T, i64 H, i64 I, i64 K, Address parameters, Address gradient, Address moments, Address rates,
                  Address blocks, Address turns, Address turned, Address state, Address counts, Address x, Address target,
                  Address out, Address grad_out, i64 every, double first_decay, double second_decay, double epsilon) {
    const Arrays given(8);
    at_least("T", T, 0);
    at_least("H", H, 1);
    at_least("I", I, 0);
    at_least("K", K, 1);
    at_least("every", every, 1);
    const auto needed = [&](const char* what, Address at, i64 count) {
        return static_cast<double*>(given.needed(what, at, count));
    };
    const auto optional = [&](const char* what, Address at) { return static_cast<double*>(given.optional(what, at)); };
    Online call{T,
                H,
                I,
                K,
                needed("parameters", parameters, 1),
                needed("gradient", gradient, 1),
                optional("moments", moments),
                optional("rates", rates),
                needed("blocks", blocks, H),
                needed("turns", turns, H),
                needed("turned", turned, H),
                needed("state", state, H),
                static_cast<i64*>(given.needed("counts", counts, 2)),
                needed("x", x, I ? T : 0),
                optional("target", target),
                needed("out", out, T),
                optional("grad_out", grad_out),
                every,
                first_decay,
                second_decay,
                epsilon,
                {}};
    execute(online, call, 1);
}

}  // namespace
}  // namespace orthornn

NB_MODULE(_native, m) {
    using namespace orthornn;
    keep_freed_memory();
    m.doc() = "Sequence kernels on addresses; see orthornn.kernels for the interface meant for use.";
    m.attr("interface") = 11;  // rises with every change of what follows; orthornn.kernels.backends.cpp asks for it
    m.def("isa", [] { return std::string(name(chosen())); }, "The instruction set in use; ORTHORNN_ISA overrides it.");
    m.def(
        "supported_isas",
        [] {
            std::vector<std::string> names;
            for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
                if (supported(isa)) names.push_back(name(isa));
            return names;
        },
        "The instruction sets that this build and this processor have.");
    m.def(
        "threading_runtime",
        []() -> std::optional<std::string> {
            const char* path = threading_runtime();
            return path ? std::optional<std::string>(path) : std::nullopt;
        },
        "Path of the OpenMP runtime whose threads are used, or None.");
    m.def("exchange_denormals", &exchange_denormals, "as_zero"_a,
          "Set for each thread whether denormal numbers count as zero, the calling one first; what was so before.");
    m.def(
        "ask_for_large_pages",
        [](Address memory, i64 bytes) {
            at_least("bytes", bytes, 0);
            ask_for_large_pages(reinterpret_cast<void*>(memory.at), static_cast<std::size_t>(bytes));
        },
        "memory"_a, "bytes"_a, "Pages of 2 MiB, where the system has them, for memory that is about to be written.");
    m.def("forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"), at("resets"),
          at("W"), at("U"), at("S"), at("c"), at("s"), "M"_a, at("rotations"), "activation"_a, "slope"_a, at("parameter"),
          "input_kind"_a, at("x"), at("weight_ih"), at("bias"), "I"_a, at("h0"), at("restart"), at("states"), at("saved"),
          at("last"), at("h_tilde"), "threads"_a);
    m.def("backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"),
          at("resets"), at("W"), at("U"), at("S"), at("c"), at("s"), "M"_a, at("rotations"), "activation"_a, "slope"_a,
          at("parameter"), "clip"_a, at("saved"), at("states"), at("h0"), at("restart"), at("grad_states"), at("grad_last"),
          at("delta"), at("grad_h0"), at("grad_restart"), at("grad_parameter"), at("grad_c"), at("grad_s"), at("grad_W"),
          at("packed"), at("free"), at("h_tilde"), at("grad_reflectors"), "input_kind"_a, at("x"), "I"_a,
          at("grad_weight_ih"), at("grad_bias"), "threads"_a);
    m.def("online", &online_steps, nb::kw_only(), "T"_a, "H"_a, "I"_a, "K"_a, at("parameters"), at("gradient"),
          at("moments"), at("rates"), at("blocks"), at("turns"), at("turned"), at("state"), at("counts"), at("x"),
          at("target"), at("out"), at("grad_out"), "every"_a, "first_decay"_a, "second_decay"_a, "epsilon"_a);
    m.def("factors", &factors, nb::kw_only(), "element_size"_a, "N"_a, "M"_a, at("packed"), at("free"), at("U"), at("S"),
          "threads"_a);
    add_delta(m);
    add_irregular(m);
    add_reflections(m);
}
