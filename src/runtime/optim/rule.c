/* rule.c - the names of the rules; their arithmetic is in rule_simd.c. */
#include "runtime/optim/rule.h"

const fl_rule *fl_rule_of(fl_rule_kind kind)
{
    static const fl_rule rules[] = {
        [FL_RULE_SGD] = {"sgd", 0, {0}},
        [FL_RULE_MOMENTUM] = {"momentum", 1, {"velocity"}},
        [FL_RULE_ADAGRAD] = {"adagrad", 1, {"sum"}},
        [FL_RULE_ADAM] = {"adam", 2, {"m", "v"}},
    };
    return &rules[kind];
}
