/* update_view.h - a record of an update, read part by part, without a lane.
 * Pointers lead into the record. */
#pragma once

#include "ps/aggregate/lane_record.h"

typedef struct fl_update_view {
    const fl_update_record *head;
    const fl_stream_record *stream; /* head->n_stream of them */
    const char *at;                 /* what was not read yet */
    size_t left;
    uint32_t n_section; /* that were not read */
} fl_update_view;

typedef struct fl_section_view {
    const fl_section_record *head;
    const uint64_t *key; /* head->n_key: of rows, or fl_block_key() of blocks */
    const float *value;  /* head->n_float */
} fl_section_view;

static inline const void *fl_update_take(fl_update_view *v, uint64_t size)
{
    const void *at = v->at;

    if (size > v->left)
        return NULL;
    v->at += size;
    v->left -= (size_t)size;
    return at;
}

static inline fleet_status fl_update_is_short(const fl_journal_record *r)
{
    return fl_fail(FLEET_ECORRUPT, "record %llu, an update, is too short",
                   (unsigned long long)r->lsn);
}

/* FLEET_ECORRUPT: it is too short. */
static inline fleet_status fl_update_view_of(const fl_journal_record *r,
                                             fl_update_view *v)
{
    *v = (fl_update_view){.at = r->data, .left = r->size};
    v->head = fl_update_take(v, sizeof *v->head);
    if (v->head)
        v->stream =
            fl_update_take(v, v->head->n_stream * (uint64_t)sizeof *v->stream);
    if (!v->head || !v->stream)
        return fl_update_is_short(r);
    v->n_section = v->head->n_section;
    return FLEET_OK;
}

/* The next section; *more is false after the last one. */
static inline fleet_status fl_update_view_next(const fl_journal_record *r,
                                               fl_update_view *v,
                                               fl_section_view *s, bool *more)
{
    *s = (fl_section_view){0};
    *more = v->n_section > 0;
    if (!*more)
        return FLEET_OK;
    v->n_section--;
    s->head = fl_update_take(v, sizeof *s->head);
    if (!s->head || s->head->n_float > v->left / sizeof(float))
        return fl_update_is_short(r);
    s->key = fl_update_take(v, s->head->n_key * (uint64_t)sizeof *s->key);
    s->value = fl_update_take(v, (s->head->n_float + s->head->n_float % 2) *
                                     sizeof *s->value);
    return s->key && s->value ? FLEET_OK : fl_update_is_short(r);
}
