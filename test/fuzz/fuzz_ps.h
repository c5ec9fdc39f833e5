/* fuzz_ps.h - what the fuzzers of lanes and workers share: the input as a list
 * of choices, messages that are made of it, and a small model. Each frame lies
 * in a block of its size, so that a byte too much is seen. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/job/handle.h"
#include "net/message.h"
#include "base/memory.h"
#include "ps/codec.h"
#include "ps/partition.h"
#include "runtime/optim/update_settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool so)
{
    if (!so)
        abort();
}

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

/* The next byte; 0 at the end. */
static inline uint8_t next(input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* --- packets -------------------------------------------------------------- */

static inline void release_made(fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        free(p->frame[i].data);
    free(p);
}

static inline fl_packet *new_packet(int n_frame)
{
    fl_packet *p = calloc(1, sizeof *p + (size_t)n_frame * sizeof(fl_frame));

    must(p != NULL);
    p->refs = 1;
    p->frame = (fl_frame *)(void *)(p + 1);
    p->release = release_made;
    return p;
}

static inline void add_frame(fl_packet *p, const void *data, size_t size)
{
    void *copy = malloc(size ? size : 1);

    must(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    p->frame[p->n_frame++] = (fl_frame){copy, size};
    p->bytes += size;
}

/* Any frames; each begins with its size. */
static inline fl_packet *any_packet(input *in)
{
    int n = 1 + next(in) % 4;
    fl_packet *p = new_packet(n);

    while (n-- > 0) {
        size_t size = next(in);

        size = size < in->size ? size : in->size;
        add_frame(p, in->data, size);
        in->data += size;
        in->size -= size;
    }
    return p;
}

/* A column of the section that was begun last: its size, or one that suits. */
static inline void any_column(input *in, fl_msg_writer *w, fl_section *s,
                              int column, size_t suits)
{
    size_t n = next(in),
           unit = fl_codec_of(s) == FL_CODEC_INT8  ? 1
                  : fl_codec_of(s) != FL_CODEC_F32 ? sizeof(uint16_t)
                  : s->op == FL_SECTION_NORMS || s->op == FL_SECTION_REDUCE
                      ? sizeof(double)
                      : sizeof(float);
    bool packed = column == FL_COLUMN_KEYS && fl_has_packed_keys(s);
    size_t size = packed                       ? n
                  : column == FL_COLUMN_KEYS   ? s->n_key * 8
                  : column == FL_COLUMN_VALUES ? (n == 255 ? suits : n * unit)
                  : column == FL_COLUMN_BYTES  ? n
                  : column == FL_COLUMN_RUNS   ? (size_t)s->n_run * 8
                                               : s->n_key * 4;
    uint8_t *to = fl_msg_column(w, column, size);

    for (size_t i = 0; to && i < size; i++)
        to[i] = column == FL_COLUMN_KEYS && !packed && i % 4 ? 0 : next(in);
}

/* What closes a step has settings, unless the input has values for it, or a bit
 * of no column. */
static inline void add_settings(fl_msg_writer *w)
{
    const fl_update_settings settings = {.learning_rate = 0.25f};
    void *to = fl_msg_column(w, FL_COLUMN_VALUES, sizeof settings);

    if (to)
        memcpy(to, &settings, sizeof settings);
}

/* Keys of rows, or parameter << 32 | block. */
static inline void any_section(input *in, fl_msg_writer *w)
{
    fl_section_op op = (fl_section_op)(1 + next(in) % 10);
    uint8_t table = next(in);
    fl_section *s = fl_msg_section(w, op, table % 4);
    int columns = next(in);
    size_t suits;

    if (!s)
        return;
    if (table >= 192) /* the upper bits say as what its values travel */
        s->codec =
            (uint8_t)((table >> 2 & 3) |
                      (table & 32 && op == FL_SECTION_ROWS ? FL_PACKED_KEYS
                                                           : 0));
    s->n_key = next(in) % 8;
    s->version = next(in) % 8;
    s->n_batch = next(in);
    s->learning_rate = (float)(next(in) & 3) * 0.25f;
    suits = s->n_key * fl_codec_bytes(fl_codec_of(s), s->table == 0 ? 3 : 5);
    for (int bit = 0; bit < FL_N_COLUMN; bit++)
        if (columns >> bit & 1)
            any_column(in, w, s, 1 << bit, suits);
        else if (bit == FL_AT_VALUES && s->op == FL_SECTION_CLIP &&
                 !(columns & 64))
            add_settings(w);
}

/* A message that is one, as far as its form goes; NULL: it is none. */
static inline fl_packet *any_message(input *in, fl_packet_pool *pool,
                                     const fl_msg_head *head,
                                     const fl_msg_answer *answer)
{
    int n = next(in) % 4;
    fl_msg_writer w;
    fl_packet *made, *p;

    fl_msg_begin(&w, pool, head);
    if (answer)
        w.answer = *answer;
    while (n-- > 0)
        any_section(in, &w);
    if (fl_msg_end(&w, next(in) & 1, &made) != FLEET_OK)
        return NULL;
    p = new_packet(made->n_frame);
    for (int i = 0; i < made->n_frame; i++)
        add_frame(p, made->frame[i].data, made->frame[i].size);
    fl_packet_drop(made);
    return p;
}

/* --- the model ------------------------------------------------------------ */

typedef struct model {
    fleet *f;
    fleet_program *p;
    fleet_optimizer *o;
} model;

/* Three parameters, two tables of dim 3 and 5. */
static inline void make_model(model *m, bool clip)
{
    fleet_var *ids;

    must(fleet_init(&m->f, &(fleet_options){.num_threads = 1,
                                            .log_level = FLEET_LOG_ERROR}) ==
         FLEET_OK);
    m->p = fleet_program_create(m->f);
    ids = fleet_data(m->p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    for (int i = 0; i < 3; i++)
        fleet_parameter(m->p, (int64_t[]){i + 1, 2}, 2,
                        &(fleet_param_attr){
                            .name = (const char *const[]){"a", "b", "c"}[i]});
    fleet_sparse_embedding(m->p, ids, 3,
                           &(fleet_sparse_embedding_options){.table = "t"});
    fleet_sparse_embedding(m->p, ids, 5,
                           &(fleet_sparse_embedding_options){.table = "u"});
    must(fleet_program_status(m->p) == FLEET_OK);
    m->o = fleet_sgd(m->f, 0.1f);
    if (clip)
        must(fleet_optimizer_set_global_norm_clip(m->o, 1) == FLEET_OK);
}

static inline fl_store *make_store(const model *m, fl_rows_maker *make_rows)
{
    fl_store *s;

    must(fl_store_create(&m->f->context, make_rows, &s) == FLEET_OK);
    must(fl_store_add(s, m->p) == FLEET_OK);
    must(fl_store_train(s, m->o) == FLEET_OK);
    return s;
}
