/* text_lines.h - lines of text on their way from a file to a batch, without
 * being copied: they stay in the blocks that were read, which live as long as a
 * line of them is used.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/text/number.h"

enum {
    FL_BLOCK_SIZE = 1 << 20, /* files are read in pieces of this size */
    FL_LINE_LIMIT = 64 << 20 /* a longer line is an error */
};

/* One line, without its newline. FL_TEXT_PAD bytes before and after it are
 * readable and do not change while it is used. */
typedef struct fl_line {
    const char *text;
    uint32_t size;
    int32_t file;   /* index in the spec's list */
    int64_t number; /* in its file, from 1 */
} fl_line;

/* Whatever the host's locale says. */
static inline bool fl_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

typedef struct fl_block {
    struct fl_block *next; /* among the free ones */
    char *memory;
    char *data; /* in memory, with FL_TEXT_PAD bytes before and behind */
    size_t capacity;
    int users;
} fl_block;

/* Where blocks come from and go back to; any thread. */
typedef struct fl_blocks {
    pthread_mutex_t lock;
    fl_block *free;
} fl_blocks;

void fl_blocks_init(fl_blocks *b);
void fl_blocks_done(fl_blocks *b); /* every block must be free */

/* A block for at least size bytes, with one user. */
fleet_status fl_block_get(fl_blocks *b, size_t size, fl_block **block);
void fl_block_drop(fl_blocks *b, fl_block *block); /* one user less; or NULL */

/* Lines and the blocks they lie in. */
typedef struct fl_lines {
    fl_line *line;
    size_t n, capacity;
    fl_block **block;
    size_t n_block, block_capacity;
} fl_lines;

/* Add a line of block. Lines of one block come one after the other. NULL: of
 * memory that outlives the lines. */
fleet_status fl_lines_add(fl_lines *l, fl_blocks *b, fl_block *block,
                          const fl_line *line);

/* n lines of block at once, which the caller then writes to *line. */
fleet_status fl_lines_add_room(fl_lines *l, fl_blocks *b, fl_block *block,
                               size_t n, fl_line **line);

/* Of lines whose text is a block of rows and whose size a row of it: how many
 * from i on are rows of one block that follow one another. */
size_t fl_lines_together(const fl_lines *lines, size_t i);
void fl_lines_clear(fl_lines *l, fl_blocks *b); /* keeps its memory */
void fl_lines_done(fl_lines *l, fl_blocks *b);
