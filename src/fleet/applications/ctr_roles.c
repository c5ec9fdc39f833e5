/* ctr_roles.c - which slots are histories and items, and how many of them a
 * model wants. */
#include "base/error.h"
#include "fleet/applications/ctr.h"

const char *const fl_slot_role_names[] = {"feature", "history", "item",
                                          "negative", NULL};

fleet_status fl_ctr_check_role(const fl_ctr_model *m, const fleet_id_slot *s)
{
    const bool one = s->role == FLEET_SLOT_ITEM && (m->pairs || m->one_id);
    const bool places = s->role == FLEET_SLOT_HISTORY ||
                        (s->role == FLEET_SLOT_NEGATIVE && m->pairs);

    if (s->role < 0 || s->role >= FL_N_SLOT_ROLE)
        return fl_fail(FLEET_EINVAL, "%s: %s: role %d does not exist", m->name,
                       s->name, (int)s->role);
    if (s->role == FLEET_SLOT_FEATURE)
        return !m->no_features
                   ? FLEET_OK
                   : fl_fail(FLEET_EINVAL,
                             "%s: %s: expected a \"history\" or an \"item\", "
                             "the model has no features",
                             m->name, s->name);
    if (m->role[s->role].most == 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected no \"%s\", the model has none",
                       m->name, s->name, fl_slot_role_names[s->role]);
    if (places && s->dim != -1)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected dim -1 of a \"%s\", got %lld", m->name,
                       s->name, fl_slot_role_names[s->role], (long long)s->dim);
    if (s->role == FLEET_SLOT_NEGATIVE && !places && s->dim == -1)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected a dim of 1 or more of a \"negative\", "
                       "got -1",
                       m->name, s->name);
    if (places && s->combiner != FLEET_SUM)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected no combiner of a \"%s\", whose ids "
                       "stay apart",
                       m->name, s->name, fl_slot_role_names[s->role]);
    if (one && s->dim != 0 && s->dim != 1)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected dim 1 of an \"item\", got %lld",
                       m->name, s->name, (long long)s->dim);
    return FLEET_OK;
}

fleet_status fl_ctr_check_roles(const fl_ctr_model *m, const fleet_id_slot *s,
                                int n, int n_dense)
{
    int count[FL_N_SLOT_ROLE] = {[FLEET_SLOT_FEATURE] = n_dense};

    for (int i = 0; i < n; i++)
        count[s[i].role]++;
    for (int r = FLEET_SLOT_FEATURE; r < FL_N_SLOT_ROLE; r++)
        if (!(r == FLEET_SLOT_FEATURE && m->role[r].most == 0) &&
            (count[r] < m->role[r].least || count[r] > m->role[r].most))
            return fl_fail(FLEET_EINVAL,
                           "%s: expected %d to %d slots of role \"%s\", got %d",
                           m->name, m->role[r].least, m->role[r].most,
                           fl_slot_role_names[r], count[r]);
    if (m->pairs && count[FLEET_SLOT_HISTORY] != count[FLEET_SLOT_ITEM])
        return fl_fail(FLEET_EINVAL,
                       "%s: expected an \"item\" for each \"history\", in the "
                       "same order, got %d and %d",
                       m->name, count[FLEET_SLOT_ITEM],
                       count[FLEET_SLOT_HISTORY]);
    if (m->pairs && count[FLEET_SLOT_NEGATIVE] > 0 &&
        count[FLEET_SLOT_NEGATIVE] != count[FLEET_SLOT_HISTORY])
        return fl_fail(FLEET_EINVAL,
                       "%s: expected no \"negative\", or one for each "
                       "\"history\", in the same order, got %d and %d",
                       m->name, count[FLEET_SLOT_NEGATIVE],
                       count[FLEET_SLOT_HISTORY]);
    return FLEET_OK;
}
