/* inodes.c - see inodes.h. */
#define SUITE inodes
#include "inodes.h"
#include "test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last one of that number, which a file may have had that is gone. */
int inodes_find(const inodes *all, const struct stat *st)
{
    for (int i = all->n - 1; i >= 0; i--)
        if (all->node[i].ino == st->st_ino && all->node[i].dev == st->st_dev)
            return i;
    return NO_INODE;
}

int inodes_at(const inodes *all, const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? inodes_find(all, &st) : NO_INODE;
}

int inodes_open(const inodes *all, int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? inodes_find(all, &st) : NO_INODE;
}

int inodes_folder(const inodes *all, const char *path)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    return inodes_at(all, folder);
}

int inodes_add(inodes *all, const char *path)
{
    struct stat st;

    CHECK(lstat(path, &st) == 0);
    all->node = realloc(all->node, (size_t)(all->n + 1) * sizeof *all->node);
    CHECK(all->node != NULL);
    all->node[all->n] = (inode){st.st_dev, st.st_ino, S_ISDIR(st.st_mode)};
    return all->n++;
}

void inodes_forget(inodes *all, int number)
{
    if (number != NO_INODE)
        all->node[number].ino = 0;
}

void inodes_done(inodes *all)
{
    free(all->node);
    *all = (inodes){0};
}
