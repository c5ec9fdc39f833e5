/* rule.c - the table of the rules, made of rules.def, and their kernels on each
 * instruction set. */
#include "runtime/optim/rule.h"

#include <math.h>
#include <stddef.h>

#include "runtime/simd/simd.h"

/* A place that two numbers of a rule have is an override, and a warning. */
static const fl_rule rules[] = {
#define FL_RULE(KIND, rule, n, rows, ...)                                      \
    [FL_RULE_##KIND].name = #rule, [FL_RULE_##KIND].n_state = (n),             \
    [FL_RULE_##KIND].n_row = (rows), [FL_RULE_##KIND].state = {__VA_ARGS__},
#define FL_NUMBER(KIND, number_, place, otherwise_, ...)                       \
    [FL_RULE_##KIND].number[place] = {#number_, false, otherwise_, __VA_ARGS__},
#define FL_FLAG(KIND, flag_, place)                                            \
    [FL_RULE_##KIND].number[place] = {.name = #flag_, .flag = true},
#include "runtime/optim/rules.def"
};

#define FL_RULE(KIND, name, n, rows, ...)                                      \
    _Static_assert(sizeof((const char *[]){__VA_ARGS__}) ==                    \
                       ((n) + (rows) > 0 ? (n) + (rows) : 1) * sizeof(char *), \
                   "the states of " #name " have names");
#include "runtime/optim/rules.def"

const fl_rule *fl_rule_of(fl_rule_kind kind)
{
    return &rules[kind];
}

bool fl_rule_has_moments(fl_rule_kind kind)
{
    return kind == FL_RULE_ADAM || kind == FL_RULE_ADAMW ||
           kind == FL_RULE_ADAMAX || kind == FL_RULE_SHARED_ADAM;
}

#define SAME_PLACES(KIND)                                                      \
    _Static_assert((int)FL_AT_##KIND##_beta1 == FL_AT_ADAM_beta1 &&            \
                       (int)FL_AT_##KIND##_beta2 == FL_AT_ADAM_beta2 &&        \
                       (int)FL_AT_##KIND##_epsilon == FL_AT_ADAM_epsilon &&    \
                       (int)FL_AT_##KIND##_row_steps == FL_AT_ADAM_row_steps,  \
                   #KIND " has Adam's numbers at Adam's places")
SAME_PLACES(ADAMW);
SAME_PLACES(ADAMAX);
SAME_PLACES(SHARED_ADAM);

const fl_rule_set *fl_rule_set_on(const fl_simd *simd)
{
    static const fl_rule_set *const sets[] = {
        [FL_ISA_PLAIN] = &fl_rule_set_plain,
#if defined(__x86_64__)
        [FL_ISA_AVX2] = &fl_rule_set_avx2,
        [FL_ISA_AVX512] = &fl_rule_set_avx512,
#endif
    };

    return sets[simd->level];
}

const fl_rule_set *fl_rule_set_best(void)
{
    return fl_rule_set_on(fl_simd_best());
}
