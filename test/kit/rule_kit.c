/* rule_kit.c - see rule_kit.h. */
#include "rule_kit.h"

#include <stdbool.h>
#include <stddef.h>

#include "runtime/optim/rule.h"

static bool is_alike(fl_rule_kind a, fl_rule_kind b)
{
    return fl_rule_of(a)->n_state == fl_rule_of(b)->n_state &&
           fl_rule_of(a)->n_row == fl_rule_of(b)->n_row &&
           fl_rule_has_moments(a) == fl_rule_has_moments(b);
}

const char *kit_rule_of_shape(int i)
{
    for (int kind = 0; kind < FL_N_RULE; kind++) {
        int before = 0;

        while (before < kind &&
               !is_alike((fl_rule_kind)before, (fl_rule_kind)kind))
            before++;
        if (before == kind && i-- == 0)
            return fl_rule_of((fl_rule_kind)kind)->name;
    }
    return NULL;
}
