-- Two roles for a cluster: workers play runs, gateways put them into the queue and answer questions. Neither may change
-- the tables. Their owner does, and runs this afterwards:
--
--     callboard cluster --migrate --cluster postgresql://owner@db/callboard
--     psql -f cluster-roles.sql postgresql://owner@db/callboard
--
-- Do both again before each new version. Give each role a password, or have pg_hba.conf let it in by its certificate.
do $$ begin
    if not exists (select 1 from pg_roles where rolname = 'callboard_worker') then create role callboard_worker login; end if;
    if not exists (select 1 from pg_roles where rolname = 'callboard_gateway') then create role callboard_gateway login; end if;
end $$;

grant usage on schema callboard to callboard_worker, callboard_gateway;
grant usage on all sequences in schema callboard to callboard_worker, callboard_gateway;
grant select on all tables in schema callboard to callboard_worker, callboard_gateway;

grant insert, update, delete on all tables in schema callboard to callboard_worker;
revoke delete on callboard.runs, callboard.rows, callboard.events from callboard_worker;
revoke insert, update, delete on callboard.about from callboard_worker;

grant insert, update, delete on callboard.runs, callboard.blobs to callboard_gateway;
grant insert on callboard.rows to callboard_gateway; -- those that a fork of a run begins with
grant insert, update, delete on callboard.ledger, callboard.held, callboard.usage, callboard.spenders to callboard_gateway;
grant update on callboard.questions to callboard_gateway;
