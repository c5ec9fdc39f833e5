/* trail_internal.h - a trail, shared by trail.c, which writes it, and
 * trail_read.c. */
#pragma once

#include "ps/journal/journal_folder.h"
#include "ps/journal/journal_reader.h"
#include "ps/trail/trail.h"
#include "ps/trail/trail_packets.h"
#include "ps/trail/trail_slots.h"

typedef enum fl_trail_kind {
    FL_NOTED_LIFE = 1,  /* fl_life_record: a process has it */
    FL_NOTED_RUN,       /* fl_trail_run: of that run, with nothing before */
    FL_NOTED_PASS,      /* fl_pass_record, text: a pass begins */
    FL_NOTED_PASS_OVER, /* fl_pass_record, mark: its batches are trained */
    FL_NOTED_REDUCED,   /* number (u64), doubles */
    FL_NOTED_COMMAND,   /* step (u64), texts, each with its 0: of each lane */
    FL_NOTED_LEAVES,    /* step (u64) */
    FL_NOTED_HAS_LEFT,  /* nothing */
    FL_NOTED_SAVE,      /* step (u64), text: a save that is begun */
    FL_NOTED_SAVED      /* step (u64), fleet_status (u32): what it came to */
} fl_trail_kind;

typedef struct fl_life_record {
    uint64_t nonce;
    uint32_t life, worker;
} fl_life_record;

typedef struct fl_trail_run {
    uint32_t run, zero;
} fl_trail_run;

typedef struct fl_pass_record {
    uint64_t number;        /* of the passes of this trail, from 1 */
    uint64_t step, reduced; /* the stream's, before it */
} fl_pass_record;

/* The heads of what the slots hold. */
typedef struct fl_push_slot {
    uint64_t step, reduced, pass;
    uint32_t n_lane, mark_size;
} fl_push_slot;

typedef struct fl_call_slot {
    uint64_t step, reduced, pass;
    uint32_t reduces, flags, op, n, text_size, has_text;
} fl_call_slot;

/* What a call came to. */
typedef struct fl_trail_result {
    uint16_t kind;
    uint64_t number; /* or step */
    char *data;      /* for fl_free() */
    size_t size;
} fl_trail_result;

/* What the facade said of a pass. */
typedef struct fl_pass_text {
    uint64_t number;
    char *text;
} fl_pass_text;

struct fl_trail {
    fl_journal_folder home; /* locked: another process that has the lock knows
                               that this one is dead */
    const char *folder;
    int worker;
    fl_journal_level level;
    fl_log *log;
    fl_trail_host host;
    fl_journal_writer *journal;
    fl_journal_end end; /* of what was read: where the writer begins */
    fl_trail_slots pushes, calls;
    uint64_t nonce;
    uint32_t life, run;
    uint64_t pass; /* of the passes of this trail; 0: none has begun */
    bool in_pass;  /* behind its first push, and before its end */
    bool early;    /* it has not come to its first training pass, and the
                        process before had */
    uint64_t start_step, start_reduced; /* where that one began */

    /* of the process before */
    fl_trail_point from;
    uint64_t from_pass;
    fl_pass_text text[2]; /* of the last passes that were begun; the last one
                             may have no push */
    char mark[FL_MOST_MARK];
    fl_trail_record push[2], call[2];
    fl_trail_result *result;
    size_t n_result, result_capacity;
};

/* All that lies in its folder. */
fleet_status fl_trail_read(fl_trail *t);

/* What was read goes. */
void fl_trail_forget(fl_trail *t);
