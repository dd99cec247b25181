-- name: insert_resource
INSERT INTO kosmos.scim_resources (tenant_id, id, kind, name, name_key, external_id, active, content, former_subjects,
                                   version, created_at, modified_at)
VALUES (%(tenant_id)s, %(id)s, %(kind)s, %(name)s, %(name_key)s, %(external_id)s, %(active)s, %(content)s, '{}',
        1, %(now)s, %(now)s)

-- name: read_resource
SELECT r.id, r.content, r.version, r.created_at, r.modified_at
  FROM kosmos.scim_resources r
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = %(kind)s AND r.id = %(id)s

-- name: lock_resource
SELECT r.id, r.content, r.version, r.created_at, r.modified_at
  FROM kosmos.scim_resources r
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = %(kind)s AND r.id = %(id)s
   FOR UPDATE

-- name: update_resource
UPDATE kosmos.scim_resources r
   SET name = %(name)s, name_key = %(name_key)s, external_id = %(external_id)s, active = %(active)s,
       content = %(content)s, version = r.version + 1, modified_at = %(now)s,
       former_subjects = CASE
           WHEN r.kind = 'User'
           THEN array_remove(array_remove(array_remove(r.former_subjects, r.name_key), r.external_id)
                             || r.name_key || r.external_id, NULL)
           ELSE r.former_subjects
       END
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = %(kind)s AND r.id = %(id)s

-- name: delete_resource
DELETE FROM kosmos.scim_resources r WHERE r.tenant_id = %(tenant_id)s AND r.kind = %(kind)s AND r.id = %(id)s

-- name: count_resources
SELECT count(*)
  FROM kosmos.scim_resources r
 WHERE r.tenant_id = %(tenant_id)s AND r.kind = %(kind)s
   AND (%(name_key)s::text IS NULL OR r.name_key = %(name_key)s)
   AND (%(external_id)s::text IS NULL OR r.external_id = %(external_id)s)

-- name: list_resources
-- A page of a kind, or of those of one name or external id, the oldest first: what is created between two pages comes
-- last. Only the rows of the page have their content read.
SELECT r.id, r.content, r.version, r.created_at, r.modified_at
  FROM kosmos.scim_resources r
 WHERE r.tenant_id = %(tenant_id)s
   AND r.id IN (SELECT p.id
                  FROM kosmos.scim_resources p
                 WHERE p.tenant_id = %(tenant_id)s AND p.kind = %(kind)s
                   AND (%(name_key)s::text IS NULL OR p.name_key = %(name_key)s)
                   AND (%(external_id)s::text IS NULL OR p.external_id = %(external_id)s)
                 ORDER BY p.created_at, p.id
                 LIMIT %(limit)s::integer OFFSET %(offset)s::integer)
 ORDER BY r.created_at, r.id

-- name: list_members
SELECT m.group_id, m.user_id, u.name
  FROM kosmos.scim_members m
  JOIN kosmos.scim_resources u ON u.tenant_id = %(tenant_id)s AND u.id = m.user_id
 WHERE m.tenant_id = %(tenant_id)s AND m.group_id = ANY (%(ids)s::uuid[])
 ORDER BY m.group_id, m.user_id

-- name: insert_members
-- Only users of the tenant.
INSERT INTO kosmos.scim_members (tenant_id, group_id, user_id)
SELECT u.tenant_id, %(id)s, u.id
  FROM kosmos.scim_resources u
 WHERE u.tenant_id = %(tenant_id)s AND u.kind = 'User' AND u.id = ANY (%(user_ids)s::uuid[])
ON CONFLICT DO NOTHING

-- name: delete_members
DELETE FROM kosmos.scim_members m
 WHERE m.tenant_id = %(tenant_id)s AND m.group_id = %(id)s AND m.user_id = ANY (%(user_ids)s::uuid[])

-- name: delete_other_members
DELETE FROM kosmos.scim_members m
 WHERE m.tenant_id = %(tenant_id)s AND m.group_id = %(id)s AND m.user_id <> ALL (%(user_ids)s::uuid[])

-- name: count_users
SELECT count(*)
  FROM kosmos.scim_resources u
 WHERE u.tenant_id = %(tenant_id)s AND u.kind = 'User' AND u.id = ANY (%(user_ids)s::uuid[])

-- name: list_groups_of_users
SELECT m.user_id, g.id, g.name
  FROM kosmos.scim_members m
  JOIN kosmos.scim_resources g ON g.tenant_id = %(tenant_id)s AND g.id = m.group_id
 WHERE m.tenant_id = %(tenant_id)s AND m.user_id = ANY (%(ids)s::uuid[])
 ORDER BY m.user_id, g.name

-- name: find_membership
-- The users of a subject, each with the names of its groups; an external id may occur twice.
SELECT u.active, ARRAY(SELECT g.name
                         FROM kosmos.scim_members m
                         JOIN kosmos.scim_resources g ON g.tenant_id = %(tenant_id)s AND g.id = m.group_id
                        WHERE m.tenant_id = %(tenant_id)s AND m.user_id = u.id
                        ORDER BY g.name)
  FROM kosmos.scim_resources u
 WHERE u.tenant_id = %(tenant_id)s AND u.kind = 'User'
   AND (%(name_key)s::text IS NULL OR u.name_key = %(name_key)s)
   AND (%(external_id)s::text IS NULL OR u.external_id = %(external_id)s)

-- name: find_deactivated_former
-- A deactivated user that had the name or external id at an earlier time.
SELECT u.id
  FROM kosmos.scim_resources u
 WHERE u.tenant_id = %(tenant_id)s AND u.kind = 'User' AND NOT u.active
   AND u.former_subjects @> ARRAY[%(subject)s::text]
 LIMIT 1
