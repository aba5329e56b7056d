// reflections_forward and reflections_backward of the Python module.
#include "arguments.hpp"
#include "reflections_call.hpp"

using namespace nb::literals;

namespace orthornn {
namespace {

ReflectionTables tables(const Sequences& given, i64 M, i64 heads, i64 S, Address index, Address k, Address beta,
                        Address gate, i64 gates, Address turn, i64 turns, Address add, Address inverse) {
    at_least("M", M, 1);
    at_least("heads", heads, 1);
    at_least("S", S, 0);
    const auto number = [](i64 value) { return std::to_string(value); };
    if (given.N % heads) fail("Expected heads that divide N = " + number(given.N) + ", but got " + number(heads) + ".");
    if (gate && gates != heads && gates != given.N)
        fail("Expected gates to be heads = " + number(heads) + " or N = " + number(given.N) + ", but got " + number(gates) +
             ".");
    if (turn && turns != 1 && turns != S)
        fail("Expected turns to be 1 or S = " + number(S) + ", but got " + number(turns) + ".");
    const i64* const rows = static_cast<const i64*>(array_at("index", index, 8, false));
    if (!rows && S != given.R)
        fail("Expected S to be R = " + number(given.R) + " without an index, but got " + number(S) + ".");
    for (i64 r = 0; rows && r < given.R; ++r) check_token(rows[r], S, r);
    return {M,
            heads,
            S,
            rows,
            given.needed("k", k, given.R),
            given.needed("beta", beta, given.R),
            given.optional("gate", gate),
            gate ? gates : 0,
            given.optional("turn", turn),
            turns,
            given.optional("add", add),
            static_cast<double*>(array_at("inverse", inverse, 8, given.R > 0))};
}

void forward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, i64 M, i64 heads, i64 S,
             Address index, Address k, Address beta, Address gate, i64 gates, Address turn, i64 turns, Address add,
             Address inverse, int activation, double slope, Address parameter, Address h0, Address restart, Address states,
             Address saved, Address last, Address dots, int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    ReflectionForward call{};
    call.rows = given.rows;
    call.phi = phi(given, activation, slope, parameter);
    call.tables = tables(given, M, heads, S, index, k, beta, gate, gates, turn, turns, add, inverse);
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.states = given.optional("states", states);
    call.saved = call.phi.kind().keeps_z ? given.optional("saved", saved) : nullptr;
    call.last = given.optional("last", last);
    call.dots = given.optional("dots", dots);
    execute(reflections_table(chosen(), element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, i64 M, i64 heads, i64 S,
              Address index, Address k, Address beta, Address gate, i64 gates, Address turn, i64 turns, Address add,
              Address inverse, int activation, double slope, Address parameter, double clip, Address h0, Address restart,
              Address states, Address saved, Address dots, Address grad_states, Address grad_last, Address grad_k,
              Address grad_beta, Address grad_gate, Address grad_angle, Address grad_add, Address grad_h0,
              Address grad_parameter, Address grad_restart, int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    check_clip(clip);
    ReflectionBackward call{};
    call.rows = given.rows;
    call.phi = phi(given, activation, slope, parameter);
    call.tables = tables(given, M, heads, S, index, k, beta, gate, gates, turn, turns, add, inverse);
    call.clip = clip;
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.states = given.needed("states", states, given.R);
    call.saved = given.needed("saved", saved, given.R);
    call.dots = given.needed("dots", dots, given.R);
    call.grad_states = given.optional("grad_states", grad_states);
    call.grad_last = given.optional("grad_last", grad_last);
    call.grad_k = given.optional("grad_k", grad_k);
    call.grad_beta = given.optional("grad_beta", grad_beta);
    call.grad_gate = given.optional("grad_gate", grad_gate);
    call.grad_angle = given.optional("grad_angle", grad_angle);
    call.grad_add = given.optional("grad_add", grad_add);
    call.grad_h0 = given.optional("grad_h0", grad_h0);
    call.grad_restart = given.optional("grad_restart", grad_restart);
    call.grad_parameter = given.optional("grad_parameter", grad_parameter);
    execute(reflections_table(chosen(), element_size).backward, call, threads);
}

}  // namespace

void add_reflections(nb::module_& m) {
    m.def("reflections_forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"),
          at("resets"), "M"_a, "heads"_a, "S"_a, at("index"), at("k"), at("beta"), at("gate"), "gates"_a, at("turn"),
          "turns"_a, at("add"), at("inverse"), "activation"_a, "slope"_a, at("parameter"), at("h0"), at("restart"),
          at("states"), at("saved"), at("last"), at("dots"), "threads"_a);
    m.def("reflections_backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"),
          at("resets"), "M"_a, "heads"_a, "S"_a, at("index"), at("k"), at("beta"), at("gate"), "gates"_a, at("turn"),
          "turns"_a, at("add"), at("inverse"), "activation"_a, "slope"_a, at("parameter"), "clip"_a, at("h0"), at("restart"),
          at("states"), at("saved"), at("dots"), at("grad_states"), at("grad_last"), at("grad_k"), at("grad_beta"),
          at("grad_gate"), at("grad_angle"), at("grad_add"), at("grad_h0"), at("grad_parameter"), at("grad_restart"),
          "threads"_a);
}

}  // namespace orthornn
