/* inodes.h - the files and folders that a test's disk knows (disk_kit,
 * sim_disk), by a number of their own, whatever their names are. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

enum { NO_INODE = -1 };

typedef struct inode {
    dev_t dev;
    ino_t ino;
    bool folder;
} inode;

/* All zero is an empty list; number i is at node[i]. */
typedef struct inodes {
    inode *node;
    int n;
} inodes;

int inodes_add(inodes *all, const char *path); /* its number */

/* The number of what is so described, lies there, or is open; of the folder
 * that a path is in. NO_INODE: the disk does not know it. */
int inodes_find(const inodes *all, const struct stat *st);
int inodes_at(const inodes *all, const char *path);
int inodes_open(const inodes *all, int fd);
int inodes_folder(const inodes *all, const char *path);

/* It is gone: another one may have what the system tells it by soon. */
void inodes_forget(inodes *all, int number);

void inodes_done(inodes *all); /* it is empty then */
