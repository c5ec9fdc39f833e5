/* rule_kit.h - one rule of each shape, for tests that are about what is around
 * a rule: its arithmetic is compared elsewhere, on each instruction set and on
 * GPUs. */
#pragma once

/* The i-th rule whose numbers of states, of a weight and of a row, and bias
 * corrections no rule before it in rules.def has; NULL: there are no more. */
const char *kit_rule_of_shape(int i);
