/* lane_record.h - what the records of a lane's journal hold: one for each unit
 * that a lane applies at once, written before it is (lane_journal.c), and
 * applied again by lane_replay.c. All numbers are little-endian, and begin at
 * multiples of their size.
 *
 * What no record has is not a lane's to remember: steps that are not whole are
 * sent again, as is the end of a pass until the pass closes. */
#pragma once

#include "net/message.h"
#include "ps/journal/journal_record.h"
#include "ps/lease_queue.h"
#include "runtime/optim/update_settings.h"
#include "runtime/store/table_api.h"

typedef enum fl_lane_record_kind {
    FL_LANE_RECORD_RUN = 1, /* fl_run_record: the lane is of that run */
    FL_LANE_RECORD_PLACE,   /* fl_place_record: a process has its place */
    FL_LANE_RECORD_UPDATE,  /* fl_update_record, streams, sections, hashes */
    FL_LANE_RECORD_LEAVE,   /* streams: that have left */
    FL_LANE_RECORD_PASS,    /* streams: the pass has closed for them */
    FL_LANE_RECORD_REDUCED, /* fl_reduced_record, streams, doubles */
    FL_LANE_RECORD_COMMAND, /* fl_command_record, answer, request */

    /* of a snapshot, in this order: what the lane was like */
    FL_LANE_RECORD_STATE, /* fl_state_record, a fl_place_state of each stream,
                             doubles, texts */
    FL_LANE_RECORD_DENSE, /* fl_dense_record, floats */
    FL_LANE_RECORD_TABLE, /* fl_table_record; then its rows: */
    FL_LANE_RECORD_ROWS,  /* fl_rows_record_head, rows */
    FL_LANE_RECORD_WHOLE, /* fl_whole_record: that was all */
    FL_LANE_RECORD_LIFE,  /* behind the state, of each table with a life:
                             fl_table_life_record, fl_life_marks */
    FL_LANE_RECORD_LEASE, /* fl_lease_record, leases; of a snapshot all of a
                             stream's, behind the state */
    FL_LANE_RECORD_BYE    /* fl_bye_record: a worker has heard that it has
                             left */
} fl_lane_record_kind;

typedef struct fl_run_record {
    uint32_t run, zero;
} fl_run_record;

typedef struct fl_bye_record {
    uint32_t stream, zero;
} fl_bye_record;

typedef struct fl_place_record {
    uint32_t stream, incarnation;
    uint64_t nonce; /* hash of the process's */
    char who[96];
    uint32_t no_log, zero; /* 1: it cannot be started again */
} fl_place_record;

/* A stream whose step, or number for a sum, this is. */
typedef struct fl_stream_record {
    uint32_t stream;
    uint32_t n_batch; /* of a contribution */
    uint64_t step;
} fl_stream_record;

/* An update: in sync the sum of its contributions, in async the step as it
 * came. */
typedef struct fl_update_record {
    uint64_t version; /* of the lane, before it */
    uint32_t n_stream, n_section;
    uint32_t n_batch; /* that the sum is divided by */
    float clip;
    fl_update_settings settings;
    uint32_t stops;        /* 1: a worker wants all to stop after it */
    uint32_t n_hash, zero; /* of the lane before it: aggregate_live.h; 0: it has
                              none */
} fl_update_record;

/* Followed by n_key keys, n_float floats, and zeros to a multiple of 8. Values
 * that have travelled in fewer bytes are floats. */
typedef struct fl_section_record {
    uint32_t table, op; /* DENSE or ROWS, as in messages */
    uint32_t n_key, zero;
    uint64_t n_float;
} fl_section_record;

typedef struct fl_reduced_record {
    uint32_t how, first; /* whose numbers were the first */
    uint32_t n, n_stream;
} fl_reduced_record;

/* Followed by n leases of the stream, of 8 bytes: its first - th of the pass,
 * from 0 on, and those behind it. */
typedef struct fl_lease_record {
    fl_lease_pass pass;
    uint64_t sums, first;
    uint32_t stream, n;
} fl_lease_record;

/* A step that was a command. The request of a load or a write is what a replay
 * does again; other commands have changed nothing. */
typedef struct fl_command_record {
    uint64_t step;
    uint32_t stream, kind; /* fl_job_command */
    uint32_t status, answer_size, request_size;
    uint32_t has_answer;
} fl_command_record;

/* A lane without its store. */
typedef struct fl_state_record {
    uint64_t version, updates;
    uint32_t run, life;
    float clip;
    uint32_t n_stream;
    uint32_t reduced_how, reduced_first, n_reduced, zero;
} fl_state_record;

/* Of a stream: its place, its steps, and its last command, whose text, if it
 * has one, is behind the texts of the streams before. */
typedef struct fl_place_state {
    uint64_t done, reduced, stop_step, command_step, nonce;
    uint32_t incarnation, command_status, text_size;
    uint8_t has_text, left, no_log, has_clock; /* left 2: it has heard so */
    char who[96];
    uint64_t contributed, clock; /* where staleness is bounded */
} fl_place_state;

/* Floats of a group of dense parameters, as the lane's store has it: weights
 * (state 0), or the state before that number. */
typedef struct fl_dense_record {
    uint32_t group, state;
    uint64_t first, n;
} fl_dense_record;

/* How rows that a table does not have yet begin: a load changes it. */
typedef struct fl_table_record {
    uint32_t table, kind; /* the table's place in the store */
    float a, b;
    uint64_t seed, stream;
    int64_t vector_at;
} fl_table_record;

/* What a table's life knows besides its rows and what it counts, which are in
 * tables of their own. */
typedef struct fl_table_life_record {
    uint32_t table, n_mark; /* the table's place in the store */
    uint64_t emptied_at, loaded_at;
} fl_table_life_record;

/* Rows as they lie in the table: each its key, its head, and `floats` floats,
 * and zeros up to a multiple of 8 bytes. */
typedef struct fl_rows_record_head {
    uint32_t table, n; /* the table's place in the store; rows */
    uint32_t floats, zero;
} fl_rows_record_head;

typedef struct fl_whole_record {
    uint64_t floats, rows;
} fl_whole_record;

_Static_assert(sizeof(fl_state_record) == 48 && sizeof(fl_place_state) == 168 &&
                   sizeof(fl_table_life_record) == 24 &&
                   sizeof(fl_life_mark) == 16,
               "records are written as they lie in memory");

_Static_assert(sizeof(fl_place_record) == 120 &&
                   sizeof(fl_lease_record) == 40 &&
                   sizeof(fl_update_record) == 56 &&
                   sizeof(fl_section_record) == 24 &&
                   sizeof(fl_command_record) == 32,
               "records are written as they lie in memory");

/* What a record is made of, and its memory. */
typedef struct fl_record_parts {
    fl_journal_parts parts;
    fl_update_record update;
    fl_stream_record *stream;
    fl_section_record *section;
    uint64_t *key;  /* of blocks */
    uint64_t *hash; /* of the lane */
    size_t n_section, stream_capacity, section_capacity, key_capacity,
        hash_capacity;
} fl_record_parts;

/* One section more, with its keys, in memory that was made for it; its floats
 * follow, and what fills them up. */
static inline fleet_status fl_record_section(fl_record_parts *p,
                                             fl_section_op op, uint32_t table,
                                             const void *keys, uint32_t n_key,
                                             size_t n_float)
{
    fl_section_record *s = &p->section[p->n_section++];

    *s = (fl_section_record){
        .table = table, .op = op, .n_key = n_key, .n_float = n_float};
    FL_TRY(fl_journal_add(&p->parts, s, sizeof *s));
    return fl_journal_add(&p->parts, keys, n_key * sizeof(uint64_t));
}

static inline fleet_status fl_record_pad(fl_record_parts *p, size_t n_float)
{
    static const float zero;

    return n_float % 2 ? fl_journal_add(&p->parts, &zero, sizeof zero)
                       : FLEET_OK;
}
