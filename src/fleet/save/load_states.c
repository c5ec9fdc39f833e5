/* load_states.c - states of a save and of an optimizer, compared by name. */
#include "fleet/save/load_states.h"

#include <string.h>

#include "base/text.h"

/* Names of states: n_state of weights, then n_row of rows. */
typedef struct state_names {
    const char *const *name;
    int n_state, n_row;
} state_names;

static state_names names_of_rule(const fl_rule *rule, const fl_saved_item *item)
{
    return rule ? (state_names){rule->state, rule->n_state,
                                item->is_table ? rule->n_row : 0}
                : (state_names){0};
}

static state_names names_of_item(const fl_saved_item *item)
{
    return (state_names){item->state, item->n_state, item->n_row};
}

static int count_names(const state_names *s)
{
    return s->n_state + s->n_row;
}

/* Where `in` has the i-th of `of`, of weights or of rows as that; -1: it does
 * not. */
static int find_state(const state_names *in, const state_names *of, int i)
{
    bool of_row = i >= of->n_state;
    int first = of_row ? in->n_state : 0;
    int end = of_row ? count_names(in) : in->n_state;

    for (int k = first; k < end; k++)
        if (strcmp(in->name[k], of->name[i]) == 0)
            return k;
    return -1;
}

/* How many of the rule's states the save does not have. */
static int place_states(const fl_rule *rule, fl_saved_item *item)
{
    const state_names wants = names_of_rule(rule, item);
    const state_names has = names_of_item(item);
    int missing = 0;

    for (int i = 0; i < count_names(&wants); i++) {
        item->state_at[i] = find_state(&has, &wants, i);
        missing += item->state_at[i] < 0;
    }
    return missing;
}

/* FTRL's weights follow from its states. */
static fleet_status check_ftrl(const fl_rule *rule, const fl_saved_item *item)
{
    if (rule != fl_rule_of(FL_RULE_FTRL))
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE,
                   "\"%s\" was saved without the states z and n of ftrl, from "
                   "which its weights follow: they cannot be initialized",
                   item->name);
}

static void list_states(fl_text *t, const state_names *s)
{
    for (int i = 0; i < count_names(s); i++)
        fl_text_add(t, "%s%s", i > 0 ? ", " : "", s->name[i]);
    if (count_names(s) == 0)
        fl_text_add(t, "none");
}

static fleet_status refuse_states(const fl_rule *rule,
                                  const fl_saved_item *item)
{
    const state_names saved = names_of_item(item);
    const state_names of_rule = names_of_rule(rule, item);
    fl_text has = {0}, wants = {0};
    fleet_status status;

    list_states(&has, &saved);
    list_states(&wants, &of_rule);
    status = fl_fail(FLEET_ESHAPE,
                     "\"%s\" was saved with the states of another optimizer "
                     "than %s: expected %s, got %s",
                     item->name, rule->name, fl_text_chars(&wants),
                     fl_text_chars(&has));
    fl_text_done(&has);
    fl_text_done(&wants);
    return status;
}

fleet_status fl_saved_check_states(const fl_rule *rule, fl_saved_item *item,
                                   const fleet_load_options *o)
{
    const state_names wants = names_of_rule(rule, item);
    int missing = place_states(rule, item);
    bool extra =
        rule && item->n_state + item->n_row > count_names(&wants) - missing;

    if (!rule || (missing == 0 && !extra))
        return FLEET_OK;
    if (o->states == FLEET_STATES_REFUSE ||
        (extra && o->on_extra == FLEET_EXTRA_REFUSE))
        return refuse_states(rule, item);
    return missing > 0 ? check_ftrl(rule, item) : FLEET_OK;
}

void fl_saved_note_states(const fl_saved_item *item, const fl_store *store,
                          const fl_rule *rule)
{
    const state_names wants = names_of_rule(rule, item);
    const state_names has = names_of_item(item);
    fl_text initialized = {0}, left_out = {0};

    for (int i = 0; i < count_names(&wants); i++)
        if (item->state_at[i] < 0)
            fl_text_add(&initialized, " %s", rule->state[i]);
    for (int i = 0; rule && i < count_names(&has); i++)
        if (find_state(&wants, &has, i) < 0)
            fl_text_add(&left_out, " %s", item->state[i]);
    if (initialized.length + left_out.length > 0)
        FL_INFO(&store->context->log,
                "load: \"%s\" comes from another optimizer than %s: states "
                "initialized:%s; left out:%s",
                item->name, rule->name,
                initialized.length ? initialized.chars : " none",
                left_out.length ? left_out.chars : " none");
    fl_text_done(&initialized);
    fl_text_done(&left_out);
}
