/* text_lines.c - blocks, their users, and lists of lines. */
#include "data/text/text_lines.h"

#include "base/memory.h"

/* A block that a very long line has made larger than this is not kept. */
enum { KEEP = 4 * FL_BLOCK_SIZE };

void fl_blocks_init(fl_blocks *b)
{
    *b = (fl_blocks){.free = NULL};
    pthread_mutex_init(&b->lock, NULL);
}

static void destroy_block(fl_block *block)
{
    if (block)
        fl_free(block->memory);
    fl_free(block);
}

void fl_blocks_done(fl_blocks *b)
{
    while (b->free) {
        fl_block *next = b->free->next;

        destroy_block(b->free);
        b->free = next;
    }
    pthread_mutex_destroy(&b->lock);
}

static fleet_status create_block(size_t size, fl_block **block)
{
    fl_block *new;

    FL_TRY(FL_NEW(&new, sizeof *new));
    new->capacity = size < FL_BLOCK_SIZE ? FL_BLOCK_SIZE : size;
    new->memory = fl_alloc(new->capacity + 2 * FL_TEXT_PAD);
    if (!new->memory) {
        destroy_block(new);
        return FLEET_ENOMEM;
    }
    new->data = new->memory + FL_TEXT_PAD;
    new->users = 1;
    *block = new;
    return FLEET_OK;
}

fleet_status fl_block_get(fl_blocks *b, size_t size, fl_block **block)
{
    fl_block **at, *found;

    pthread_mutex_lock(&b->lock);
    at = &b->free;
    while (*at && (*at)->capacity < size)
        at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        found->users = 1;
    }
    pthread_mutex_unlock(&b->lock);
    *block = found;
    return found ? FLEET_OK : create_block(size, block);
}

static void drop_locked(fl_blocks *b, fl_block *block)
{
    if (--block->users > 0)
        return;
    if (block->capacity > KEEP) {
        destroy_block(block);
        return;
    }
    block->next = b->free;
    b->free = block;
}

void fl_block_drop(fl_blocks *b, fl_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&b->lock);
    drop_locked(b, block);
    pthread_mutex_unlock(&b->lock);
}

fleet_status fl_lines_add_room(fl_lines *l, fl_blocks *b, fl_block *block,
                               size_t n, fl_line **line)
{
    if (block && (l->n_block == 0 || l->block[l->n_block - 1] != block)) {
        FL_TRY(fl_grow(&l->block, &l->block_capacity, l->n_block + 1,
                       sizeof *l->block));
        l->block[l->n_block++] = block;
        pthread_mutex_lock(&b->lock);
        block->users++;
        pthread_mutex_unlock(&b->lock);
    }
    if (l->capacity - l->n < n)
        FL_TRY(fl_grow(&l->line, &l->capacity, l->n + n, sizeof *l->line));
    *line = l->line + l->n;
    l->n += n;
    return FLEET_OK;
}

fleet_status fl_lines_add(fl_lines *l, fl_blocks *b, fl_block *block,
                          const fl_line *line)
{
    fl_line *to;

    FL_TRY(fl_lines_add_room(l, b, block, 1, &to));
    *to = *line;
    return FLEET_OK;
}

size_t fl_lines_together(const fl_lines *lines, size_t i)
{
    const fl_line *first = &lines->line[i];
    size_t n = 1;

    while (i + n < lines->n && first[n].text == first->text &&
           first[n].size == first->size + n)
        n++;
    return n;
}

void fl_lines_clear(fl_lines *l, fl_blocks *b)
{
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < l->n_block; i++)
        drop_locked(b, l->block[i]);
    pthread_mutex_unlock(&b->lock);
    l->n = l->n_block = 0;
}

void fl_lines_done(fl_lines *l, fl_blocks *b)
{
    fl_lines_clear(l, b);
    fl_free(l->line);
    fl_free(l->block);
    *l = (fl_lines){0};
}
