/* libsvm_slots.h - which slot of libsvm's lines is which: a label of dim 1
 * unless the lines have none, then "qid" if they have it, then the features. */
#pragma once

#include <string.h>

#include "data/layout/layout.h"

/* -1: there is none. */
static inline int fl_libsvm_qid(const fl_stream_spec *s)
{
    for (int i = 0; i < s->n_slot - 1; i++)
        if (strcmp(s->slots[i].name, "qid") == 0)
            return i;
    return -1;
}

static inline int fl_libsvm_label(const fl_stream_spec *s)
{
    return s->n_slot > 1 && fl_libsvm_qid(s) != 0 ? 0 : -1;
}

/* FLEET_ECONFIG, and *at, for other slots. */
fleet_status fl_libsvm_check(const fl_stream_spec *s, int *at);
