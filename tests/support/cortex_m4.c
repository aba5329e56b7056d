/* A program for qemu's mps2-an386 (Cortex-M4) without an operating system: run the self-test of a generated network, then
   count the instructions of steps. Prints by semihosting: "selftest N" and one count per line.

   With qemu's -icount shift=6 an instruction takes 64 ns of virtual time, and SysTick counts 25 MHz: 1.6 ticks. */

#include <stdint.h>

#include "network.h"

extern uint32_t stack_top;
void start(void);
__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {&stack_top, (const void *)start};

static int semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void print(const char *text, int32_t number)
{
    char digits[12];
    int place = 11;
    uint32_t rest = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
    digits[place] = 0;
    do {
        digits[--place] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0)
        digits[--place] = '-';
    semihosting(4, text);
    semihosting(4, digits + place);
    semihosting(4, "\n");
}

#define TICK_CONTROL (*(volatile uint32_t *)0xE000E010)
#define TICK_RELOAD (*(volatile uint32_t *)0xE000E014)
#define TICK_NOW (*(volatile uint32_t *)0xE000E018)
#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88)

static network_state state;
static NETWORK_WIDE y[NETWORK_OUTPUTS];
static NETWORK_NUMBER x[NETWORK_INPUTS];

/* Ticks of `repeats` steps on one input. */
static int32_t ticks(int repeats)
{
    int i;
    const uint32_t begin = TICK_NOW;
    for (i = 0; i < repeats; i++)
        network_step(&state, x, y);
    return (int32_t)((begin - TICK_NOW) & 0xFFFFFF);
}

void start(void)
{
    static const NETWORK_NUMBER values[4] = {0, 1, -(NETWORK_NUMBER)30000, (NETWORK_NUMBER)32767};
    int k, i;
    COPROCESSORS |= 0xFu << 20;
    __asm__ volatile("dsb\n isb");
    print("selftest ", network_selftest());
    TICK_RELOAD = 0xFFFFFF;
    TICK_NOW = 0;
    TICK_CONTROL = 5;
    for (k = 0; k < 4; k++) {
        network_init(&state);
        for (i = 0; i < NETWORK_INPUTS; i++)
            x[i] = values[k];
        print("empty ", ticks(0));
        print("steps ", ticks(16));
    }
    semihosting(0x18, (const void *)0x20026);
    for (;;) {
    }
}
