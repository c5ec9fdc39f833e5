/* libsvm_slots.c - the check of libsvm's slots. */
#include "data/layout/libsvm_slots.h"

static fleet_status bad_slot(const fleet_slot *s, const char *why)
{
    return fl_fail(FLEET_ECONFIG, "slot \"%s\": %s", s->name, why);
}

static bool is_features(const fleet_slot *s)
{
    return fl_slot_is_id(s) ? s->dim == -1 : s->dim > 1;
}

fleet_status fl_libsvm_check(const fl_stream_spec *s, int *at)
{
    const int qid = fl_libsvm_qid(s), last = s->n_slot - 1;
    const int heads = (fl_libsvm_label(s) >= 0) + (qid >= 0);

    *at = last;
    if (!is_features(&s->slots[last]))
        return bad_slot(&s->slots[last],
                        "the last slot of libsvm's lines takes their features: "
                        "expected int64 with dim -1, or float32 with a dim of "
                        "one more than the largest index");
    *at = 0;
    if (last > heads)
        return bad_slot(&s->slots[0],
                        "libsvm's lines feed a label, \"qid\" if they have "
                        "one, and the features, in this order");
    for (; *at < last; ++*at)
        if (fl_slot_dim(&s->slots[*at]) != 1)
            return bad_slot(&s->slots[*at],
                            "expected dim 1 in front of the features");
    *at = qid;
    if (qid >= 0 && !fl_slot_is_id(&s->slots[qid]))
        return bad_slot(&s->slots[qid], "a query's number: expected int64");
    return FLEET_OK;
}
