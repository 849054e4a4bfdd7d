#ifndef TRUCE_EXPORT_H
#define TRUCE_EXPORT_H

#if defined(__GNUC__)
#define TRUCE_EXPORT              __attribute__((visibility("default")))
#define TRUCE_MUST_USE            __attribute__((warn_unused_result))
#define TRUCE_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TRUCE_EXPORT
#define TRUCE_MUST_USE
#define TRUCE_PRINTF(text, first)
#endif

#ifdef __cplusplus
#define TRUCE_BEGIN_DECLS extern "C" {
#define TRUCE_END_DECLS   }
#else
#define TRUCE_BEGIN_DECLS
#define TRUCE_END_DECLS
#endif

#endif
