-- A small shop, and a role that may only read it.
CREATE SCHEMA shop;
CREATE TABLE shop.products (
    id integer PRIMARY KEY,
    name text NOT NULL,
    category text NOT NULL
);
CREATE TABLE shop.orders (
    id integer PRIMARY KEY,
    product_id integer NOT NULL REFERENCES shop.products (id),
    ordered_on date NOT NULL,
    amount numeric(10, 2) NOT NULL
);
COMMENT ON COLUMN shop.orders.amount IS 'Revenue of the order in euros';
INSERT INTO shop.products VALUES (1, 'Desk', 'furniture'), (2, 'Chair', 'furniture'), (3, 'Lamp', 'light');
INSERT INTO shop.orders VALUES
    (1, 1, '2026-01-10', 400.00),
    (2, 2, '2026-01-11', 150.00),
    (3, 3, '2026-02-01', 80.00);
CREATE ROLE shop_reader LOGIN PASSWORD 'reader';
GRANT USAGE ON SCHEMA shop TO shop_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA shop TO shop_reader;
