// irregular_forward and irregular_backward of the Python module.
#include "arguments.hpp"
#include "irregular_call.hpp"

using namespace nb::literals;

namespace orthornn {
namespace {

IrregularTransition transition(const Sequences& given, Address angles, Address rates, Address dt) {
    const auto numbers = [](const char* what, Address address, i64 count) {
        return static_cast<const double*>(array_at(what, address, 8, count > 0));
    };
    return {numbers("angles", angles, given.N / 2), numbers("rates", rates, given.N - given.N / 2),
            numbers("dt", dt, given.R)};
}

void forward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, Address angles,
             Address rates, Address dt, Address x, Address h0, Address restart, Address states, Address last, int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    IrregularForward call{};
    call.rows = given.rows;
    call.transition = transition(given, angles, rates, dt);
    call.x = given.needed("x", x, given.R);
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.states = given.optional("states", states);
    call.last = given.optional("last", last);
    execute(irregular_table(chosen(), element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Address batch_sizes, Address resets, Address angles,
              Address rates, Address dt, Address h0, Address restart, Address states, Address grad_states, Address grad_last,
              Address grad_x, Address grad_angles, Address grad_rates, Address grad_dt, Address grad_h0,
              Address grad_restart, int threads) {
    const Sequences given(element_size, T, B, N, R, batch_sizes, resets);
    const auto doubles = [](const char* what, Address address) {
        return static_cast<double*>(array_at(what, address, 8, false));
    };
    IrregularBackward call{};
    call.rows = given.rows;
    call.transition = transition(given, angles, rates, dt);
    call.h0 = given.optional("h0", h0);
    call.restart = given.optional("restart", restart);
    call.states = given.needed("states", states, given.R);
    call.grad_states = given.optional("grad_states", grad_states);
    call.grad_last = given.optional("grad_last", grad_last);
    call.grad_x = given.optional("grad_x", grad_x);
    call.grad_angles = doubles("grad_angles", grad_angles);
    call.grad_rates = doubles("grad_rates", grad_rates);
    call.grad_dt = doubles("grad_dt", grad_dt);
    call.grad_h0 = given.optional("grad_h0", grad_h0);
    call.grad_restart = given.optional("grad_restart", grad_restart);
    execute(irregular_table(chosen(), element_size).backward, call, threads);
}

}  // namespace

void add_irregular(nb::module_& m) {
    m.def("irregular_forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"),
          at("resets"), at("angles"), at("rates"), at("dt"), at("x"), at("h0"), at("restart"), at("states"), at("last"),
          "threads"_a);
    m.def("irregular_backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, at("batch_sizes"),
          at("resets"), at("angles"), at("rates"), at("dt"), at("h0"), at("restart"), at("states"), at("grad_states"),
          at("grad_last"), at("grad_x"), at("grad_angles"), at("grad_rates"), at("grad_dt"), at("grad_h0"),
          at("grad_restart"), "threads"_a);
}

}  // namespace orthornn
