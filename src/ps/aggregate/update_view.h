/* update_view.h - a record of a lane, read part by part: of an update without a
 * lane, too. Pointers lead into the record. */
#pragma once

#include "ps/aggregate/lane_record.h"

/* What of a record was not read yet. */
typedef struct fl_record_reader {
    const char *at;
    size_t left;
} fl_record_reader;

/* The next part; NULL: the record is too short for it. */
static inline const void *fl_record_take(fl_record_reader *b, uint64_t size)
{
    const void *at = b->at;

    if (size > b->left)
        return NULL;
    b->at += size;
    b->left -= (size_t)size;
    return at;
}

typedef struct fl_section_view {
    const fl_section_record *head;
    const uint64_t *key; /* head->n_key: of rows, or fl_block_key() of blocks */
    const float *value;  /* head->n_float */
} fl_section_view;

/* false: the record is too short. */
static inline bool fl_section_take(fl_record_reader *b, fl_section_view *s)
{
    s->head = fl_record_take(b, sizeof *s->head);
    if (!s->head || s->head->n_float > b->left / sizeof *s->value)
        return false;
    s->key = fl_record_take(b, s->head->n_key * (uint64_t)sizeof *s->key);
    s->value = fl_record_take(b, (s->head->n_float + s->head->n_float % 2) *
                                     sizeof *s->value);
    return s->key && s->value;
}

/* --- an update ------------------------------------------------------------ */

typedef struct fl_update_view {
    const fl_update_record *head;
    const fl_stream_record *stream; /* head->n_stream of them */
    fl_record_reader reader;
    uint32_t n_section; /* that were not read */
} fl_update_view;

static inline fleet_status fl_update_is_short(const fl_journal_record *r)
{
    return fl_fail(FLEET_ECORRUPT, "record %llu, an update, is too short",
                   (unsigned long long)r->lsn);
}

/* FLEET_ECORRUPT: it is too short. */
static inline fleet_status fl_update_view_of(const fl_journal_record *r,
                                             fl_update_view *v)
{
    *v = (fl_update_view){.reader = {r->data, r->size}};
    v->head = fl_record_take(&v->reader, sizeof *v->head);
    if (v->head)
        v->stream = fl_record_take(&v->reader, v->head->n_stream *
                                                   (uint64_t)sizeof *v->stream);
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
    return fl_section_take(&v->reader, s) ? FLEET_OK : fl_update_is_short(r);
}
