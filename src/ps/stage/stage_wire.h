/* stage_wire.h - what crosses a boundary of stages, in messages: a section
 * TENSOR for each value, by its number. */
#pragma once

#include "net/message.h"
#include "runtime/stages/stage_link.h"

/* What a message can have beside the loss. */
enum { FL_MOST_CROSSING = FL_MSG_MOST_SECTION - 1 };

/* Of a batch's message: how many samples its trainer's plan is made for, behind
 * the first value. So the next stage's is made for as many, and cuts batches
 * into the same slices. FLEET_EFORMAT: a message without. */
void fl_stage_set_capacity(fl_msg_writer *w, int64_t capacity);
fleet_status fl_stage_capacity(const fl_msg *msg, int64_t *capacity);

/* One more value, without gaps. FLEET_EINVAL: it is larger than a message may
 * be. */
fleet_status fl_stage_write(fl_msg_writer *w, int number,
                            const fl_stage_value *v);

/* Room for a value, to be used again; zeroed at first. */
typedef struct fl_stage_buffer {
    char *data;
    int64_t *offsets;
    size_t data_capacity, offsets_capacity;
} fl_stage_buffer;

void fl_stage_buffer_done(fl_stage_buffer *r);

/* Value `number`, of that variable, into the room: *v is what it is then.
 * FLEET_EFORMAT: the message has another one, or none. */
fleet_status fl_stage_read(const fl_msg *msg, int number, const fleet_var *var,
                           fl_stage_buffer *room, fl_stage_value *v);

/* The same, into the value's own memory; rows and columns have to be its. */
fleet_status fl_stage_read_into(const fl_msg *msg, int number,
                                const fl_stage_value *v);
