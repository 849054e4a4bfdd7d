#include "tests/support/certificate.h"

#include <stdio.h>
#include <string.h>

#include <bson/bson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/assert.h"

#define CAS_MAX 4

/* The CAs of this process. */
static struct authority {
    /* The argument of certificate_make, which identifies the CA. NULL if the slot is free. */
    char *file;
    EVP_PKEY *key;
    X509 *certificate;
} authorities[CAS_MAX];

/* Makes a certificate for `key`, signed with the key `with`. If `by` is NULL, it is a CA that signs
 * itself; otherwise it is for the local host. */
static X509 *sign(EVP_PKEY *key, const char *name, const struct authority *by, EVP_PKEY *with)
{
    static long serial;
    X509 *certificate = X509_new();
    X509_NAME *subject = X509_get_subject_name(certificate);
    bool is_ca = !by;
    X509_EXTENSION *extension;

    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -86400);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, by ? X509_get_subject_name(by->certificate) : subject);
    X509_set_pubkey(certificate, key);
    extension =
        X509V3_EXT_conf_nid(NULL, NULL, is_ca ? NID_basic_constraints : NID_subject_alt_name,
                            is_ca ? "critical,CA:TRUE" : "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    truce_assert(X509_sign(certificate, with, EVP_sha256()) > 0);
    return certificate;
}

static FILE *open_file(const char *file, const char *suffix)
{
    char *path = bson_strdup_printf("%s%s", file, suffix);
    FILE *opened = fopen(path, "w");

    truce_assert(opened);
    bson_free(path);
    return opened;
}

static void make(const char *file, const struct authority *by)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = sign(key, "localhost", by, by->key);
    FILE *pem = open_file(file, ".pem");

    PEM_write_X509(pem, certificate);
    PEM_write_PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL);
    fclose(pem);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void certificate_make(const char *file)
{
    struct authority *by = authorities;
    char name[32];
    FILE *ca;

    while (by->file)
        truce_assert(++by < authorities + CAS_MAX);
    snprintf(name, sizeof name, "CA %d", (int)(by - authorities));
    by->file = bson_strdup(file);
    by->key = EVP_EC_gen("P-256");
    by->certificate = sign(by->key, name, NULL, by->key);
    ca = open_file(file, ".ca");
    PEM_write_X509(ca, by->certificate);
    fclose(ca);
    make(file, by);
}

void certificate_make_signed(const char *file, const char *by)
{
    const struct authority *at = authorities;

    while (strcmp(at->file, by) != 0)
        truce_assert(++at < authorities + CAS_MAX && at->file);
    make(file, at);
}
