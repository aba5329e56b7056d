/* The int8 LSTM of CMSIS-NN behind the interface of an exported network, for tests/support/cortex_m4.c to count its
   instructions: one input, NETWORK_OUTPUTS units, one sequence, weights of no meaning. */

#include "network.h"

#include <string.h>

#include "arm_nnfunctions.h"

#define N NETWORK_OUTPUTS

static int8_t input_weights[4][N], hidden_weights[4][N * N];
static int32_t bias[4][N], hidden_bias[4][N];
static int16_t first[N], second[N];

static void fill(int8_t *weights, int count, int seed)
{
    uint32_t drawn = (uint32_t)seed;
    int i;
    for (i = 0; i < count; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        weights[i] = (int8_t)((int32_t)(drawn >> 24) - 128);
    }
}

void network_init(network_state *state)
{
    int k;
    memset(state, 0, sizeof *state);
    for (k = 0; k < 4; k++) {
        fill(input_weights[k], N, k);
        fill(hidden_weights[k], N * N, k + 4);
    }
}

static cmsis_nn_lstm_gate gate(int k, arm_nn_activation_type activation)
{
    cmsis_nn_lstm_gate made = {1 << 30, -8, input_weights[k], bias[k], 1 << 30, -8, hidden_weights[k], hidden_bias[k],
                               bias[k], activation};
    return made;
}

void network_step(network_state *state, const int8_t *x, int8_t *y)
{
    cmsis_nn_lstm_context buffers = {first, second, state->cell, state->hidden};
    cmsis_nn_lstm_params params = {
        .time_major = 1,
        .batch_size = 1,
        .time_steps = 1,
        .input_size = 1,
        .hidden_size = N,
        .forget_to_cell_multiplier = 1 << 30,
        .forget_to_cell_shift = -14,
        .input_to_cell_multiplier = 1 << 30,
        .input_to_cell_shift = -14,
        .cell_clip = 32767,
        .cell_scale_power = -12,
        .output_multiplier = 1 << 30,
        .output_shift = -21,
    };
    params.forget_gate = gate(0, ARM_SIGMOID);
    params.input_gate = gate(1, ARM_SIGMOID);
    params.cell_gate = gate(2, ARM_TANH);
    params.output_gate = gate(3, ARM_SIGMOID);
    (void)arm_lstm_unidirectional_s8(x, y, &params, &buffers);
}

int network_selftest(void)
{
    return 0;
}
