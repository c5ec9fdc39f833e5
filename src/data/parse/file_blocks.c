/* file_blocks.c - blocks that are filled from files, one after the other. */
#include "data/parse/file_blocks.h"

#include <inttypes.h>
#include <string.h>

enum { LEAST_READ = 64 << 10 }; /* a block with less room is full */

const char *fl_file_blocks_path(const fl_file_blocks *b)
{
    return b->env.parser->spec->files[b->in.current];
}

fleet_status fl_file_blocks_init(fl_file_blocks *b, const fl_reader_env *env)
{
    const fl_stream_spec *spec = env->parser->spec;
    const fl_source_options source = {.command = fl_command_of(spec),
                                      .timeout_ms = spec->pipe_timeout_ms,
                                      .wakeup = env->wakeup,
                                      .any = spec->any_file,
                                      .binary = spec->format == FLEET_TFRECORD,
                                      .text = spec->text,
                                      .text_size = spec->text_size};

    *b = (fl_file_blocks){.env = *env};
    return fl_inputs_init(&b->in, spec->files, spec->n_file, &source,
                          spec->n_thread);
}

void fl_file_blocks_done(fl_file_blocks *b)
{
    fl_inputs_done(&b->in);
    fl_block_drop(b->env.blocks, b->block);
}

fleet_status fl_file_blocks_open(fl_file_blocks *b)
{
    b->open = false;
    FL_TRY(fl_inputs_next(&b->in));
    b->open = true;
    fl_log_line(b->env.parser->spec->log, FLEET_LOG_DEBUG, "reading %s",
                fl_file_blocks_path(b));
    b->at_end = false;
    b->number = 0;
    return FLEET_OK;
}

/* What is not handed out goes to another place, with room for more: first in
 * the block, FL_TEXT_PAD behind what other threads may be reading now. */
static void move_rest(fl_file_blocks *b, fl_block *to, size_t at)
{
    size_t carried = b->filled - b->begin;

    if (carried > 0)
        memmove(to->data + at, b->block->data + b->begin, carried);
    b->begin = at;
    b->filled = at + carried;
}

static fleet_status change_block(fl_file_blocks *b, const char *what)
{
    size_t carried = b->filled - b->begin;
    fl_block *new;

    if (carried > FL_LINE_LIMIT)
        return fl_fail(
            FLEET_EFORMAT, "%.500s:%" PRId64 ": a %s of more than %d MB",
            fl_file_blocks_path(b), b->number + 1, what, FL_LINE_LIMIT >> 20);
    FL_TRY(fl_block_get(b->env.blocks, carried + carried / 2 + 2 * LEAST_READ,
                        &new));
    move_rest(b, new, 0);
    fl_block_drop(b->env.blocks, b->block);
    b->block = new;
    return FLEET_OK;
}

/* Room behind what is filled. */
static fleet_status make_room(fl_file_blocks *b, const char *what)
{
    size_t at = b->filled + FL_TEXT_PAD;
    size_t end = at + (b->filled - b->begin);

    if (b->begin == 0 && b->block &&
        b->block->capacity - b->filled > LEAST_READ)
        return FLEET_OK; /* nothing of this block was handed out */
    if (!b->block || b->block->capacity < end + LEAST_READ)
        return change_block(b, what);
    move_rest(b, b->block, at);
    return FLEET_OK;
}

fleet_status fl_file_blocks_more(fl_file_blocks *b, const char *what)
{
    size_t got;

    if (atomic_load_explicit(b->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    FL_TRY(make_room(b, what));
    FL_TRY(fl_inputs_read(&b->in, b->block->data + b->filled,
                          b->block->capacity - b->filled, &got));
    b->filled += got;
    b->total += (double)got;
    b->at_end = got == 0;
    return FLEET_OK;
}

double fl_file_blocks_share(const fl_file_blocks *b, double before)
{
    return b->total > 0
               ? b->in.share * (1 - (double)(b->filled - b->begin) / b->total)
               : before;
}
