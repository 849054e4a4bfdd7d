#ifndef TRUCE_SERVER_ADMIN_METRICS_TEXT_H
#define TRUCE_SERVER_ADMIN_METRICS_TEXT_H

/* The text of metrics: lines, and labels with names that come from clients. */
#include "base/buffer.h"

#define METRICS_LABEL_CUT   64
#define METRICS_LABEL_BYTES (2 * METRICS_LABEL_CUT + 1)

#define METRICS_LINE_BYTES  800

/* Appends formatted text. With its final zero byte it must fit in METRICS_LINE_BYTES. */
void metrics_put(struct buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends the lines before the values of a metric. */
void metrics_put_head(struct buffer *out, const char *name, const char *type, const char *help);

/* Writes a name, cut to METRICS_LABEL_CUT bytes and escaped, as the value of a label. No character
 * is cut in half. */
void metrics_label(const char *name, char label[METRICS_LABEL_BYTES]);

#endif
